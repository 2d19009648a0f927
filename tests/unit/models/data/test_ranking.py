"""Grades and groups that make no ranking are refused with the cure; a ranking's true values hold the group."""

import numpy as np
import pyarrow as pa
import pytest

from models.data import feeds
from models.data.encode import encode
from models.errors import DataError


def ranked(**columns: object) -> pa.Table:
    """Thirty groups of four rows with the grades 0 to 2."""
    return pa.table(
        {
            "query": np.repeat([f"q{at}" for at in range(30)], 4),
            "x": np.arange(120.0),
            "grade": np.tile([0, 2, 1, 0], 30),
            **columns,
        }
    )


@pytest.fixture
def spec(make_spec):
    return make_spec(target="grade", task="ranking", split={"by": "group", "column": "query"})


def test_a_true_value_is_the_grade_with_its_group(run_prepare, spec):
    folder, preparation = run_prepare(ranked(), spec)
    assert preparation.target.group == "query"
    assert "query" not in preparation.columns
    values = [feeds.targets(folder, split) for split in ("train", "validation", "test")]
    every = np.concatenate(values)
    assert len(np.unique(every[:, 1])) == 30
    assert sum(len(np.unique(each[:, 1])) for each in values) == 30
    assert all(sorted(every[every[:, 1] == group, 0]) == [0, 0, 1, 2] for group in np.unique(every[:, 1]))
    tensors = encode(folder, "train")
    np.testing.assert_array_equal(tensors["value"], values[0])
    np.testing.assert_array_equal(tensors["target"], values[0][:, 0])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"grade": np.tile([0, 0.5, 1, 2], 30)}, r"'grade': got 0.5 among its values, expected grades: whole numbers"),
        ({"grade": np.tile([0, -1, 1, 2], 30)}, r"got -1 among its values"),
        ({"grade": np.tile([0, 31, 1, 2], 30)}, r"got 31 among its values.*cut the values into grades"),
        ({"grade": np.tile(["a", "b", "a", "b"], 30)}, r"task: ranking, but the target 'grade' is string"),
        ({"query": np.arange(120)}, r"none of the \d+ groups of the train rows \(\d+\) has two different grades"),
        ({"query": [None, *["q"] * 119]}, r"'query': 1 of 120 rows have no value"),
    ],
)
def test_what_is_no_ranking_is_refused_with_the_cure(run_prepare, spec, columns, message):
    with pytest.raises(DataError, match=message):
        run_prepare(ranked(**columns), spec)
