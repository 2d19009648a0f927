import numpy as np
import pyarrow as pa
import pytest

from models.data.target import MAX_INTEGER_CLASSES, infer_task, is_on_log_scale
from models.errors import DataError


def column(values):
    return pa.chunked_array([pa.array(values)])


def targets(values):
    return pa.table({"y": column(values)})


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b"], "binary"),
        (["a", "b", "c"], "multiclass"),
        ([True, False, None], "binary"),
        ([0, 1, 1], "binary"),
        (list(range(20)), "multiclass"),
        (list(range(21)), "regression"),
        ([0.0, 1.0, 1.0], "binary"),
        ([0.5, 1.0], "regression"),
        ([1.0, 2.0, 3.0], "regression"),
    ],
)
def test_the_task_is_guessed_by_the_stated_rules(make_spec, values, task):
    assert infer_task(targets([value for value in values if value is not None]), make_spec().data) == task


@pytest.mark.parametrize("values", [[0, 1, 1], list(range(20)), [0.0, 1.0]])
def test_numbers_are_a_regression_where_the_goal_is_for_numbers_alone(make_spec, values):
    data = make_spec().data
    assert {infer_task(targets(values), data, metric) for metric in ("mae", "r2", "pinball_0.9")} == {"regression"}
    assert "regression" not in {infer_task(targets(values), data, metric) for metric in (None, "roc_auc", "./own.py:f")}
    assert infer_task(targets(["a", "b"]), data, "mae") == "binary", "refused later: no text is a number"


def test_a_gap_is_no_value_of_a_target_that_is_counted_in_parts(make_spec, monkeypatch):
    monkeypatch.setattr("models.scratch.PART", MAX_INTEGER_CLASSES + 1)
    assert infer_task(targets([None, *range(MAX_INTEGER_CLASSES + 1)]), make_spec().data) == "regression"


def test_the_spec_has_the_last_word_where_it_can(make_spec):
    assert infer_task(targets([0, 1]), make_spec(task="regression").data) == "regression"
    with pytest.raises(DataError, match=r"data\.task: regression, but the target 'y' is string"):
        infer_task(targets(["a"]), make_spec(task="regression").data)
    with pytest.raises(DataError, match="got type timestamp"):
        infer_task(targets(np.array(["2020-01-01"], "datetime64[s]")), make_spec().data)


SKEWED = np.random.default_rng(0).lognormal(3, 1, 500)


@pytest.mark.parametrize(
    ("values", "metric", "expected"),
    [
        (SKEWED, None, True),
        (SKEWED, "pinball", True),
        (SKEWED, "rmse", False),
        (SKEWED - 1000, "mae", False),
        (np.random.default_rng(0).normal(50, 5, 500), "mae", False),
        (SKEWED[:20], "mae", False),
    ],
)
def test_the_logarithm_is_taken_by_the_stated_rule(make_spec, values, metric, expected):
    assert is_on_log_scale(targets(values), targets(values), make_spec().data, "regression", metric) is expected


def test_the_spec_decides_about_the_logarithm(make_spec):
    data = make_spec(target_scale="log").data
    assert is_on_log_scale(targets([1.0, 2.0]), targets([1.0, 2.0]), data, "regression", "rmse")
    with pytest.raises(DataError, match=r"data\.target_scale: log, but 'y' has values down to -1"):
        is_on_log_scale(targets([-1.0, 2.0]), targets([2.0]), data, "regression", "mae")
