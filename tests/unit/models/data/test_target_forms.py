"""A target becomes classes, numbers, labels or grades, by its task."""

import numpy as np
import pyarrow as pa
import pytest

from models.data import feeds
from models.data.encode import encode
from models.data.target_forms import class_indices, fit_target
from models.errors import DataError


def column(values):
    return pa.chunked_array([pa.array(values)])


def targets(values):
    return pa.table({"y": column(values)})


def test_classes_are_in_the_order_of_their_values(make_spec):
    data = make_spec().data
    assert fit_target(targets([10, 9, 2]), data, "multiclass").classes == ["2", "9", "10"]
    assert fit_target(targets([0.0, 1.0]), data, "binary").classes == ["0", "1"]
    assert fit_target(targets([True, False]), data, "binary").classes == ["false", "true"]
    assert fit_target(targets(["yes", "no"]), data, "binary").classes == ["no", "yes"]


def test_the_class_that_the_goal_names_is_the_second_one(make_spec):
    data = make_spec().data
    column = pa.table({data.targets[0]: ["legit", "fraud", "legit"]})
    assert fit_target(column, data, "binary").classes == ["fraud", "legit"]
    assert fit_target(column, data, "binary", positive="fraud").classes == ["legit", "fraud"]
    assert fit_target(column, data, "binary", positive="legit").positive == "legit"
    with pytest.raises(
        DataError, match=r"goal.positive: got 'Fraud', expected one of the classes .* 'fraud' or 'legit'"
    ):
        fit_target(column, data, "binary", positive="Fraud")
    with pytest.raises(DataError, match=r"goal.positive: got 'fraud', but the task is multiclass"):
        fit_target(column, data, "multiclass", positive="fraud")


def test_a_regression_is_standardised(make_spec):
    target = fit_target(targets([1.0, 3.0]), make_spec().data, "regression")
    assert (target.shift, target.scale, target.classes) == (2.0, 1.0, None)
    assert fit_target(targets([2.0, 2.0]), make_spec().data, "regression").scale == 1.0


def test_too_few_or_too_many_classes_are_refused(make_spec):
    data = make_spec().data
    with pytest.raises(DataError, match="one class only"):
        fit_target(targets(["a", "a"]), data, "multiclass")
    with pytest.raises(DataError, match="binary, but the target 'y' has 3 classes"):
        fit_target(targets(["a", "b", "c"]), data, "binary")
    with pytest.raises(DataError, match="got 1001 classes"):
        fit_target(targets([str(i) for i in range(1001)]), data, "multiclass")


def test_classes_become_indices_and_an_unseen_one_is_refused(make_spec):
    target = fit_target(targets(["a", "b"]), make_spec().data, "binary")
    assert class_indices(column(["b", "a", "b"]), target).tolist() == [1, 0, 1]
    with pytest.raises(DataError, match=r"classes \['c'\], expected those of the training rows"):
        class_indices(column(["a", "c"]), target)


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
def ranking_spec(make_spec):
    return make_spec(target="grade", task="ranking", split={"by": "group", "column": "query"})


def test_a_true_value_is_the_grade_with_its_group(run_prepare, ranking_spec):
    folder, preparation = run_prepare(ranked(), ranking_spec)
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
def test_what_is_no_ranking_is_refused_with_the_cure(run_prepare, ranking_spec, columns, message):
    with pytest.raises(DataError, match=message):
        run_prepare(ranked(**columns), ranking_spec)
