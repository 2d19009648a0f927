"""Closed forms of uncertainty: each is the derivative of its metric, and agrees with resamples."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from models.metrics.bootstrap import resample
from models.metrics.closed_form import normal_values
from models.metrics.evaluator import Smooth
from models.metrics.metric_suite import EXAMPLES
from models.metrics.metrics import METRICS, resolve_metric

RESAMPLED = {"pr_auc", "ece", "coverage_gap", "ndcg", "map", "mrr"}
"""Metrics without a closed form."""
OUTPUTS = {"quantile": (0.1, 0.9), "multilabel": (None, None), "regression": ()}
CASES = [(name, task) for name, metric in METRICS.items() for task in metric.tasks]


def prepared(name, task, rng):
    outputs = [
        SimpleNamespace(name=str(place), scale=2.0, quantile=level, horizon=None)
        for place, level in enumerate(OUTPUTS.get(task, ()))
    ]
    target, right, wrong = EXAMPLES[task](rng)
    is_right = (rng.random(len(target)) < 0.7).reshape(-1, *[1] * (right.ndim - 1))
    prediction = np.where(is_right, right, wrong)
    return resolve_metric(name, task, Path(), None, outputs).prepare(target, prediction), len(target)


@pytest.mark.parametrize(("name", "task"), [*CASES, ("cost_1_5", "binary"), ("pinball_0.9", "regression")])
def test_a_closed_form_is_the_derivative_of_its_metric_by_each_example(name, task):
    rng = np.random.default_rng(5)
    evaluate, num = prepared(name, task, rng)
    if name in RESAMPLED:
        assert not isinstance(evaluate, Smooth)
        return
    weight, step = rng.uniform(0.5, 2, num), 1e-6
    moved = [
        (evaluate(weight * (1 + step * one)) - evaluate(weight * (1 - step * one))) / (2 * step) * num
        for one in np.eye(num)
    ]
    influence = evaluate.influence(weight)
    np.testing.assert_allclose(influence, moved, atol=1e-6)
    assert abs(influence.sum()) < 1e-9 * np.abs(influence).sum()


def scored(rng, num):
    """A rare class and the scores of two models that share most of what they know."""
    target = (rng.random(num) < 0.1).astype(np.int64)
    known = rng.normal(size=num) + target
    return target, [np.round(known + rng.normal(size=num) + gain * target, 2) for gain in (0.0, 0.05)]


@pytest.mark.parametrize("name", ["roc_auc", "f1"])
def test_it_agrees_with_resamples_of_20000_rows(name):
    target, scores = scored(np.random.default_rng(0), 20_000)
    evaluators = [METRICS[name].prepare(target, 1 / (1 + np.exp(2 - score))) for score in scores]
    errors = [
        np.r_[values.std(axis=0, ddof=1), np.std(values[:, 1] - values[:, 0], ddof=1)]
        for values in (
            resample(evaluators, len(target), 300),
            normal_values(evaluators, np.ones(len(target)), 1000),
        )
    ]
    np.testing.assert_allclose(*errors, rtol=0.12)  # 300 resamples give a standard error within 8 % in 95 of 100 cases


def test_its_values_have_exactly_the_standard_error_and_equal_models_never_differ():
    rng = np.random.default_rng(1)
    target, prediction = rng.normal(size=(2, 500))
    evaluators = [METRICS["mae"].prepare(target, prediction), METRICS["mae"].prepare(target, prediction.copy())]
    values = normal_values(evaluators, np.ones(500), 400)
    errors = np.abs(target - prediction)
    assert values[:, 0].mean() == pytest.approx(errors.mean())
    assert values[:, 0].std(ddof=1) == pytest.approx(errors.std(ddof=1) / np.sqrt(500))
    low, high = np.quantile(values[:, 0], [0.025, 0.975])
    assert (high - low) / 2 == pytest.approx(1.96 * errors.std(ddof=1) / np.sqrt(500), rel=0.02)
    assert np.abs(values[:, 0] - values[:, 1]).max() < 1e-13


def test_an_own_metric_and_an_undefined_one_have_none():
    target = np.zeros(100, dtype=np.int64)
    undefined = METRICS["roc_auc"].prepare(target, np.linspace(0, 1, 100))
    assert normal_values([undefined], np.ones(100), 100) is None
    assert normal_values([lambda weight: float(weight.sum())], np.ones(100), 100) is None
