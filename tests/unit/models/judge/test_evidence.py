"""What a verdict rests on: refused when it cannot be compared, and told apart by digest."""

import numpy as np
import pytest

from models.errors import DataError
from models.judge.evidence import Evidence, as_text


def given(**more):
    base = {"task": "binary", "target": np.array([0, 1, 1]), "challenger": np.array([0.1, 0.9, 0.8])}
    return Evidence(**{**base, **more})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"champion": np.array([0.1, 0.2])}, "champion: got 3 targets and 2 predictions"),
        ({"champion": np.array([0.1, np.nan, 0.3])}, "champion: 1 of 3 predictions are NaN"),
        ({"baseline": np.ones((3, 2))}, "baseline: predictions have shape"),
        ({"slices": {"sex": np.array(["f"])}}, "slice sex: got 1 values, expected 3"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(more, message):
    with pytest.raises(DataError, match=message):
        given(**more).check()


def test_digests_follow_values_dtype_and_slices():
    first = given(slices={"month": np.array([1.0, np.nan, 2.0])}).digests()
    assert first == given(slices={"month": np.array(["1", None, "2"], dtype=object)}).digests()
    assert set(first) == {"target", "challenger", "slice month"}
    other = given(challenger=np.array([0.1, 0.9, 0.8], dtype=np.float32)).digests()
    assert other["challenger"] != first["challenger"]
    assert other["target"] == first["target"]


def test_slice_values_read_as_people_write_them():
    mixed = np.array([1.0, 2.5, None, float("nan"), "x", True], dtype=object)
    assert as_text(mixed).tolist() == ["1", "2.5", "missing", "missing", "x", "True"]


def test_a_users_own_words_are_no_missing_values():
    words = np.array(["None", "nan", "", "NaT"], dtype=object)
    assert as_text(words).tolist() == ["None", "nan", "missing", "NaT"]


def test_examples_that_do_not_count_leave_every_array():
    whole = given(champion=np.array([0.1, 0.2, 0.3]), slices={"sex": np.array(["f", "m", "f"])})
    part = whole.only(np.array([True, False, True]))
    part.check()
    assert (len(part.target), part.champion.tolist(), part.slices["sex"].tolist()) == (2, [0.1, 0.3], ["f", "f"])
    assert part.baseline is None
