"""A metric at its bound has an interval of some width, in the verdict, its slices, monitoring and on the charts.

A model without an error in n examples is not known to make none: the exact bound says how many it may make.
"""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from models.judge.comparison import resample_models
from models.judge.decide import judge
from models.judge.evidence import Evidence
from models.judge.verdict import Estimate
from models.metrics.limits import LIMITS, within_limits
from models.metrics.metrics import METRICS, resolve_metric
from models.monitoring.performance import POOLED, pooled, realised
from models.project_spec.blocks import Judge, Spec
from models.project_spec.monitor_and_retrain import Monitor
from models.report.figures import slices as slices_figure

NUM = 120
RULES = Judge(resamples=100, slices=["half"])
LABELS = [SimpleNamespace(name=name, scale=1.0, quantile=None, horizon=None) for name in ("a", "b")]
QUANTILES = [SimpleNamespace(name=f"q{level}", scale=1.0, quantile=level, horizon=None) for level in (0.1, 0.9)]
CASES = [
    *((name, "binary") for name in METRICS if name in LIMITS and "binary" in METRICS[name].tasks),
    *((name, "multiclass") for name in METRICS if name in LIMITS and "multiclass" in METRICS[name].tasks),
    *((name, "multilabel") for name in METRICS if name in LIMITS and "multilabel" in METRICS[name].tasks),
    *((name, "ranking") for name in ("ndcg", "map", "mrr", "ndcg_at_3")),
    ("coverage_gap", "quantile"),
    ("cost_1_5", "binary"),
]


def metric_of(name, task):
    outputs = {"multilabel": LABELS, "quantile": QUANTILES}.get(task, [])
    return resolve_metric(name, task, None, None, outputs)


def perfect(task, num, seed, wrong=0.0):
    """A target and predictions without an error, or with a share of `wrong` ones; whole for a metric of chances."""
    rng = np.random.default_rng(seed)
    missed = rng.random(num) < wrong
    if task == "multiclass":
        target = np.arange(num) % 3
        return target, np.eye(3)[(target + missed) % 3]
    if task == "multilabel":
        target = np.stack([np.arange(num) % 2, np.arange(num) // 2 % 2], axis=1)
        return target, np.abs(target - missed[:, None]).astype(float)
    if task == "ranking":
        target = np.stack([np.arange(num) % 2, np.arange(num) // 4], axis=1)
        return target, target[:, 0] + 0.1 * rng.random(num)
    if task == "quantile":
        target = np.tile(rng.normal(size=num)[:, None], 2)
        return target, target + np.where(missed[:, None], [3.0, 4.0], [-1.0, 1.0])
    target = np.arange(num) % 2
    return target, np.abs(target - missed).astype(float)


def has_width(estimate, metric):
    assert estimate.low < estimate.high
    assert metric.range.low <= estimate.low <= estimate.value <= estimate.high <= metric.range.high
    return True


@pytest.mark.parametrize(("name", "task"), CASES)
def test_a_bounded_metric_has_an_interval_at_its_bound_in_verdict_and_slices(name, task):
    metric = metric_of(name, task)
    target, ours = perfect(task, NUM, 1)
    theirs = ours * (1 - 1e-9)
    clusters = metric.units(target)
    evidence = Evidence(
        task=task, target=target, challenger=ours, champion=theirs, slices={"half": np.arange(NUM) // 60},
        clusters=clusters, outputs={"multilabel": LABELS, "quantile": QUANTILES}.get(task, []),
    )  # fmt: skip
    verdict = judge(evidence, RULES, metric)
    at_bound = metric.range.high if metric.sign > 0 else metric.range.low
    assert verdict.challenger.value == pytest.approx(0.2 if task == "quantile" else at_bound)
    assert has_width(verdict.challenger, metric)
    assert all(has_width(each.challenger, metric) for each in verdict.slices)
    assert verdict.difference.reached
    if name != "ece":  # its champion's chances are not quite whole
        assert verdict.difference.low < 0 < verdict.difference.high
        assert verdict.test_set_margin > 0


@pytest.mark.parametrize(("name", "task"), [case for case in CASES if case[1] not in ("ranking", "quantile")])
def test_no_bounded_metric_decays_by_a_loss_that_its_test_rows_cannot_show(name, task):
    """86 test rows without an error show no more than .958; production at .989 with 1,000 labels is no alarm."""
    metric, monitor = metric_of(name, task), Monitor()
    test = resample_models(metric, *perfect(task, 86, 2)[:1], {"now": perfect(task, 86, 2)[1]}, 100)
    promoted = test.estimate("now", 0.95)
    now, far = (realised(metric, *perfect(task, 1000, 3, wrong), monitor) for wrong in (0.006, 0.4))
    assert not pooled(metric, [(now, 1000)] * POOLED, promoted, monitor).decayed
    assert pooled(metric, [(far, 1000)] * POOLED, promoted, monitor).decayed
    assert has_width(realised(metric, *perfect(task, 200, 4), monitor), metric)


def test_what_is_tolerated_at_the_verdict_is_no_decay_unless_the_spec_says_so():
    def margin(judged, **monitor):
        spec = {"name": "a", "data": {"source": "a.csv", "target": "y"}, "judge": judged, "monitor": monitor}
        return Spec.model_validate(spec).monitor.margin

    assert margin({"margin": 0.05}) == 0.05
    assert margin({"margin": 0.05}, margin=0.01) == 0.01
    assert margin({"margin": 0.05}, window=500) == 0.05
    assert margin({"margin": 0.05, "mode": "superiority"}) is None
    assert margin({}) is None
    promoted, now = Estimate(value=1.0, low=0.96, high=1.0), Estimate(value=0.95, low=0.949, high=0.951)
    followed, exact = (Monitor(margin=each) for each in (0.05, None))
    assert not pooled(METRICS["accuracy"], [(now, 1000)], promoted, followed).decayed
    assert pooled(METRICS["accuracy"], [(now, 1000)], promoted, exact).decayed


@pytest.mark.usefixtures("pictures")
def test_no_axis_passes_the_bound():
    assert within_limits("accuracy", 0.96, 1.04) == (0.96, 1.0)
    assert within_limits("ndcg_at_10", -0.1, 1.04) == (0.0, 1.0)
    assert within_limits("mae", -0.1, 1.04) == (-0.1, 1.04)
    target, ours = perfect("binary", NUM, 1)
    evidence = Evidence("binary", target, ours, ours * 0.9, slices={"half": np.arange(NUM) // 60})
    svg = slices_figure(judge(evidence, RULES, METRICS["accuracy"])).decode()
    assert max(float(each) for each in re.findall(r">([\d.]+)</text>", svg)) <= 1.0


def bernoulli(metric, rng, num, errors):
    """A target of which a third is positive, and scores that are on the wrong side with probability `errors`."""
    target = (rng.random(num) < 1 / 3).astype(np.int64)
    wrong = rng.random(num) < errors
    return target, np.where(wrong, 1 - target, target) * 0.8 + 0.1 * rng.random(num)


@pytest.mark.parametrize(
    ("name", "repeats"),
    [
        ("accuracy", 300),
        *(
            pytest.param(name, 4000, marks=pytest.mark.soak)
            for name in ("accuracy", "recall", "precision", "f1", "balanced_accuracy", "roc_auc", "pr_auc")
        ),
    ],
)
def test_an_exact_interval_leaves_out_the_true_metric_in_at_most_25_of_1000_cases(name, repeats):
    metric, rng = METRICS[name], np.random.default_rng(7)
    for errors in (0.01, 0.03, 0.06, 0.1):
        true = metric.value(*bernoulli(metric, rng, 200_000, errors))
        missed = 0
        for _ in range(repeats):
            target, prediction = bernoulli(metric, rng, 60, errors)
            if metric.value(target, prediction) == 1.0:
                missed += resample_models(metric, target, {"a": prediction}, 2).estimate("a", 0.95).low > true
        assert missed / repeats <= 0.025 + 3 * (0.025 / repeats) ** 0.5
