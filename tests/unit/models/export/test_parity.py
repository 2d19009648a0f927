from pathlib import Path

import numpy as np
import pytest

from models.errors import TrainingError
from models.export.parity import TOLERANCE, parity
from models.inference.predict import predict
from tests.unit.models.inference.test_predict import feed, written


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_equal_predictions_are_in_parity(tmp_path: Path, task: str) -> None:
    path, preparation = written(tmp_path, task)
    expected = predict(path, [feed(9)], preparation)
    found = parity(path, [feed(9)], expected - 1e-6, preparation)
    assert 0 < found.max_difference < 2e-6
    assert (found.tolerance, found.num_examples, found.label_flips) == (TOLERANCE, 9, 0)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("wrong", [0.01, np.nan])
def test_the_worst_row_is_shown_when_they_differ(tmp_path: Path, task: str, wrong: float) -> None:
    path, preparation = written(tmp_path, task)
    expected = predict(path, [feed(9)], preparation)
    expected[6] += wrong * (50 if task == "regression" else 1)
    with pytest.raises(TrainingError, match=r"row 7 .* expected at most 0.0001"):
        parity(path, [feed(9)], expected, preparation)


def test_a_regression_is_compared_relative_to_its_size(tmp_path: Path) -> None:
    path, preparation = written(tmp_path, "regression")
    expected = predict(path, [feed(9)], preparation)
    found = parity(path, [feed(9)], expected * (1 + 5e-5), preparation)
    assert found.max_difference == pytest.approx(5e-5, rel=0.01)


def test_the_cure_is_in_own_code_only_where_there_is_some(tmp_path: Path) -> None:
    path, preparation = written(tmp_path, "binary")
    expected = predict(path, [feed(9)], preparation) + 0.1
    for nets, cure in ((["mlp"], "Loopline's export is at fault"), (["trees", "./net.py:Net"], r"\./net\.py:Net has")):
        with pytest.raises(TrainingError, match=cure):
            parity(path, [feed(9)], expected, preparation, nets)


def test_missing_rows_are_no_parity(tmp_path: Path) -> None:
    path, preparation = written(tmp_path, "binary")
    expected = predict(path, [feed(9)], preparation)
    with pytest.raises(TrainingError, match=r"\(8,\).*\(9,\)"):
        parity(path, [feed(8)], expected, preparation)


def test_a_class_that_flips_within_the_tolerance_is_counted(tmp_path: Path) -> None:
    path, preparation = written(tmp_path, "binary")
    expected = predict(path, [feed(9)], preparation)
    middle = feed(1) | {"größe (m)": np.array([1.5])}
    assert predict(path, [middle], preparation) == 0.5
    found = parity(path, [middle], np.array([0.50001]), preparation)
    assert (found.label_flips, len(expected)) == (1, 9)
