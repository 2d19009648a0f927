import numpy as np
import pytest
from sklearn import metrics as sk

from models.data.target_encoding import OutputColumn
from models.metrics.metrics import METRICS, metrics_for, resolve_metric
from models.metrics.outputs import by_horizon, is_covered, output_figures

RNG = np.random.default_rng(0)
WEIGHT = RNG.integers(0, 3, 200).astype(float)


def outputs(*scales, levels=None):
    levels = levels or [None] * len(scales)
    return [
        OutputColumn(name=f"o{at}", column=f"o{at}", scale=scale, quantile=level)
        for at, (scale, level) in enumerate(zip(scales, levels, strict=True))
    ]


def test_metrics_of_labels_are_those_of_scikit_learn():
    target = (RNG.random((200, 3)) < [0.5, 0.2, 0.05]).astype(np.int64)
    chance = np.clip(0.4 * target + 0.6 * RNG.random((200, 3)), 0, 1)
    called = (chance > 0.5).astype(int)
    expected = {
        "roc_auc": sk.roc_auc_score(target, chance, average="macro", sample_weight=WEIGHT),
        "pr_auc": sk.average_precision_score(target, chance, average="macro", sample_weight=WEIGHT),
        "f1": sk.f1_score(target, called, average="macro", sample_weight=WEIGHT, zero_division=0),
        "f1_micro": sk.f1_score(target, called, average="micro", sample_weight=WEIGHT),
        "precision": sk.precision_score(target, called, average="macro", sample_weight=WEIGHT, zero_division=0),
        "recall": sk.recall_score(target, called, average="macro", sample_weight=WEIGHT, zero_division=0),
        "accuracy": sk.accuracy_score(target, called, sample_weight=WEIGHT),
    }
    for name, value in expected.items():
        metric = METRICS[name].of(outputs(1.0, 1.0, 1.0))
        assert metric.value(target, chance, WEIGHT) == pytest.approx(value, rel=1e-9), name


def test_a_label_that_occurs_never_counts_in_no_ranking_metric():
    target = np.array([[0, 0], [1, 0], [0, 0], [1, 0]])
    chance = np.array([[0.1, 0.2], [0.9, 0.3], [0.2, 0.1], [0.8, 0.4]])
    assert METRICS["roc_auc"].of(outputs(1.0, 1.0)).value(target, chance) == 1.0


def test_errors_of_several_targets_are_relative_to_their_scales(tmp_path):
    target = np.column_stack([RNG.normal(size=200), 1000 * RNG.normal(size=200)])
    prediction = target + np.column_stack([np.full(200, 0.5), np.full(200, 100.0)])
    own = outputs(1.0, 1000.0)
    mae = resolve_metric(None, "regression", tmp_path, outputs=own)
    assert mae.value(target, prediction) == pytest.approx((0.5 + 0.1) / 2)
    rmse = METRICS["rmse"].of(own).value(target, prediction, WEIGHT)
    assert rmse == pytest.approx((0.5 + 0.1) / 2)
    r2 = METRICS["r2"].of(own).value(target, prediction)
    assert r2 == pytest.approx(sk.r2_score(target, prediction, multioutput="uniform_average"))


def test_quantiles_are_judged_by_their_pinball_loss():
    levels = [0.1, 0.5, 0.9]
    own = outputs(1.0, 1.0, 1.0, levels=levels)
    truth = RNG.normal(size=200)
    target = np.repeat(truth[:, None], 3, axis=1)
    prediction = np.tile(np.quantile(truth, levels), (200, 1))
    expected = np.mean([sk.mean_pinball_loss(truth, prediction[:, at], alpha=level) for at, level in enumerate(levels)])
    assert METRICS["pinball"].of(own).value(target, prediction) == pytest.approx(expected)
    assert METRICS["coverage_gap"].of(own).value(target, prediction) == pytest.approx(0.0, abs=0.02)
    figures = output_figures({}, own, target, prediction)
    assert [figures[output.name]["share below"] for output in own] == pytest.approx(levels, abs=0.02)


def test_each_task_has_its_default_first():
    assert metrics_for("multilabel")[0].name == "roc_auc"
    assert [metric.name for metric in metrics_for("quantile")] == ["pinball", "coverage_gap"]


def test_horizons_are_of_one_target_so_that_their_mean_is_in_its_unit():
    horizons = [OutputColumn(name=f"h{ahead}", column=f"h{ahead}", scale=5.0, horizon=ahead) for ahead in (1, 2)]
    metric = METRICS["mae"].of(horizons)
    assert metric.value(np.zeros((3, 2)), np.full((3, 2), [1.0, 3.0])) == 2.0


def test_the_pinball_loss_of_one_quantile_is_the_mean_over_the_horizons(tmp_path):
    own = [OutputColumn(name=f"h{ahead}", column=f"h{ahead}", scale=9.0, horizon=ahead) for ahead in (1, 7)]
    target, prediction = RNG.normal(size=(2, 200, 2))
    metric = resolve_metric("pinball_0.9", "regression", tmp_path, outputs=own)
    expected = [sk.mean_pinball_loss(target[:, at], prediction[:, at], alpha=0.9) for at in range(2)]
    assert metric.value(target, prediction) == pytest.approx(np.mean(expected))


def test_the_quantiles_of_each_horizon_have_an_interval_and_a_loss_of_their_own():
    own = [
        OutputColumn(name=f"h{ahead}_q{level}", column=f"h{ahead}", horizon=ahead, quantile=level)
        for ahead in (1, 7)
        for level in (0.1, 0.9)
    ]
    target = np.array([[5.0, 5.0, 5.0, 5.0], [1.0, 1.0, 9.0, 9.0]])
    prediction = np.array([[4.0, 6.0, 6.0, 7.0], [0.0, 2.0, 8.0, 10.0]])
    np.testing.assert_array_equal(is_covered(target, prediction, own), [[True, False], [True, True]])
    assert METRICS["coverage_gap"].of(own).value(target, prediction) == pytest.approx(0.8 - 0.75)
    pinball = METRICS["pinball"].of(own)
    assert pinball.of_some is not None
    assert by_horizon(own) == {"h1": [0, 1], "h7": [2, 3]}
    each = [
        pinball.of_some([own[place] for place in at])(target[:, at], prediction[:, at])(np.ones(2))
        for at in by_horizon(own).values()
    ]
    assert pinball.value(target, prediction) == pytest.approx(np.mean(each))
    assert each[0] == pytest.approx(
        np.mean(
            [sk.mean_pinball_loss(target[:, at], prediction[:, at], alpha=level) for at, level in ((0, 0.1), (1, 0.9))]
        )
    )
