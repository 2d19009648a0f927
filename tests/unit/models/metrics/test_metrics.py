"""How names, directions and a user's own metric are understood, and when there is no value."""

import math
import warnings

import numpy as np
import pytest

from models.data.preparation import Preparation
from models.data.target_encoding import OutputColumn, TargetEncoding
from models.errors import DataError, UsageError, UserCodeError
from models.metrics.metrics import METRICS, measure, metric_name, metric_of, metrics_for, resolve_metric
from models.project_spec.goal import Goal


@pytest.mark.parametrize("name", ["roc_auc", "pr_auc"])
def test_ranking_of_one_class_is_undefined_and_measure_says_so(name):
    target, prediction = np.zeros(5, dtype=int), np.linspace(0, 1, 5)
    assert math.isnan(METRICS[name].value(target, prediction))
    with pytest.raises(DataError, match=f"{name} is undefined on 5 examples with 1 distinct"):
        measure(METRICS[name], target, prediction)


def test_a_share_of_zero_is_undefined_and_measure_says_how_many_there_are():
    target = np.array([0.0, 1.0, 0.0, 3.0])
    with pytest.raises(DataError, match="mape is undefined on 4 examples of which 2 have the target 0"):
        measure(METRICS["mape"], target, np.ones(4))
    with pytest.raises(DataError, match="r2 is undefined on 4 examples with 1 distinct"):
        measure(METRICS["r2"], np.ones(4), np.ones(4))


ONE_OUTPUT = [OutputColumn(name="q0.5", column="y", quantile=0.5)]


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_no_weight_at_all_is_undefined_without_a_warning(metric):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prediction = np.ones((2, 3)) if metric.tasks == ("language",) else np.array([0.2, 0.8])
        target = np.array([0, 1])
        if metric.is_of_groups:
            target = np.array([[0, 0], [1, 0]])
        if metric.tasks in (("multilabel",), ("quantile",)):
            target, prediction, metric = target[:, None], prediction[:, None], metric.of(ONE_OUTPUT)
        assert math.isnan(metric.value(target, prediction, np.zeros(2)))


@pytest.mark.parametrize(
    ("target", "prediction", "message"),
    [
        ([], [], "at least one"),
        ([0, 1], [0.5], "got 2 targets and 1 predictions"),
        ([0, 1], [0.5, float("nan")], "1 of 2 predictions are NaN"),
        ([0.0, float("inf")], [0.5, 0.5], "1 of 2 targets are NaN"),
    ],
)
def test_measure_refuses_arrays_that_no_metric_can_be_taken_of(target, prediction, message):
    with pytest.raises(DataError, match=message):
        measure(METRICS["accuracy"], np.array(target), np.array(prediction))


def test_the_usual_metric_of_each_task(tmp_path):
    assert resolve_metric(None, "binary", tmp_path).name == "roc_auc"
    assert resolve_metric(None, "multiclass", tmp_path).name == "accuracy"
    assert resolve_metric(None, "regression", tmp_path).name == "mae"
    assert [metrics_for(task)[0].name for task in ("binary", "multiclass", "regression")] == [
        "roc_auc",
        "accuracy",
        "mae",
    ]


@pytest.mark.parametrize(
    ("reference", "task", "direction", "message"),
    [
        ("roc_acu", "binary", None, "did you mean 'roc_auc'"),
        ("ncdg_at_10", "ranking", None, "got 'ncdg@10', expected one of ndcg, map, mrr; did you mean 'ndcg'"),
        ("ndcg_at_0", "ranking", None, "got 'ndcg@0', expected"),
        ("ndcg", "regression", None, "got 'ndcg', which is for ranking"),
        ("mae", "binary", None, "got 'mae', which is for regression"),
        ("mae", "regression", "maximize", "mae is to minimize"),
        ("./own.py:gain", "binary", None, "needed for your own metric"),
        ("./own.py:number", "binary", "maximize", "is a int, expected a function"),
        ("./own.py:gian", "binary", "maximize", "did you mean 'gain'"),
    ],
)
def test_a_wrong_metric_is_refused_with_the_cure(tmp_path, reference, task, direction, message):
    (tmp_path / "own.py").write_text("number = 3\ndef gain(target, prediction): return 1.0\n")
    with pytest.raises(UsageError, match=message):
        resolve_metric(reference, task, tmp_path, direction)


def test_a_metric_of_your_own_goes_by_its_function_unless_a_ready_one_has_that_name(tmp_path):
    (tmp_path / "own.py").write_text("def gain(target, prediction): return 1.0\nmae = loss = gain\n")
    names = [resolve_metric(f"./own.py:{name}", "regression", tmp_path, "maximize").name for name in ("gain", "mae")]
    assert names == ["gain", "./own.py:mae"]
    assert [metric_name(name) for name in ("mae", "./own.py:loss")] == ["mae", "./own.py:loss"]


def test_a_metric_of_your_own_sees_repeated_examples_as_weights(tmp_path):
    (tmp_path / "own.py").write_text("def total(target, prediction): return float(prediction.sum())\n")
    metric = resolve_metric("./own.py:total", "regression", tmp_path, "minimize")
    assert (metric.takes_weights, metric.sign) == (False, -1)
    assert metric.value(np.zeros(3), np.array([1.0, 10.0, 100.0]), np.array([2.0, 0.0, 1.0])) == 102.0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", "gave back None"),
        ("return float('nan')", "gave back nan"),
        ("return 'good'", "gave back 'good'"),
        ("return True", "gave back True"),
        ("return prediction", "expected one finite number"),
        ("return 1 / 0", r"raised ZeroDivisionError.*own\.py:1"),
    ],
)
def test_a_metric_of_your_own_that_gives_no_number_is_your_error(tmp_path, body, message):
    (tmp_path / "own.py").write_text(f"def bad(target, prediction): {body}\n")
    metric = resolve_metric("./own.py:bad", "binary", tmp_path, "maximize")
    with pytest.raises(UserCodeError, match=message):
        measure(metric, np.array([0, 1]), np.array([0.2, 0.8]))


def test_a_metric_of_your_own_that_raises_is_undefined_on_that_resample_alone(tmp_path):
    (tmp_path / "own.py").write_text(
        "def both(target, prediction):\n"
        "    if len(set(target.tolist())) < 2:\n        raise ValueError('one class')\n    return 0.5\n"
    )
    metric = resolve_metric("./own.py:both", "binary", tmp_path, "maximize")
    value = metric.evaluator(np.array([0, 1]), np.array([0.1, 0.9]))
    assert value(np.array([1.0, 1.0])) == 0.5
    assert math.isnan(value(np.array([2.0, 0.0])))


def test_the_metric_of_a_goal_fits_the_model(tmp_path):
    preparation = Preparation(kind="table", task="binary", target=TargetEncoding(name="y", classes=["n", "y"]))
    assert metric_of(Goal(), preparation, tmp_path).name == "roc_auc"
    assert metric_of(Goal(metric="log_loss"), preparation, tmp_path).sign == -1
    levels = [OutputColumn(name=f"y_{level}", column="y", quantile=level) for level in (0.1, 0.9)]
    several = Preparation(kind="table", task="quantile", target=TargetEncoding(name="y", outputs=levels))
    target, predicted = np.array([[1.0, 1.0]]), np.array([[0.0, 3.0]])
    assert metric_of(Goal(), several, tmp_path).value(target, predicted) == pytest.approx((0.1 * 1 + 0.1 * 2) / 2)
