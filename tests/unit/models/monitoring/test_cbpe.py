from pathlib import Path

import numpy as np
import pytest

from models.metrics.metrics import METRICS, resolve_metric
from models.monitoring.calibration import fit_calibration
from models.monitoring.cbpe import expected_metric


def honest(num: int, seed: int, spread: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Targets and chances that are true."""
    source = np.random.default_rng(seed)
    chances = 1 / (1 + np.exp(-spread * source.standard_normal(num)))
    return (source.random(num) < chances).astype(np.int64), chances


@pytest.mark.parametrize("name", ["roc_auc", "accuracy", "log_loss", "brier", "f1", "pr_auc"])
def test_the_estimate_is_near_what_labels_tell_on_easier_and_harder_cases(name: str) -> None:
    calibration = fit_calibration(*honest(20_000, 0))
    assert calibration is not None
    for seed, spread in ((1, 1.5), (2, 0.7), (3, 2.5)):
        target, chances = honest(20_000, seed, spread)
        truth = METRICS[name].value(target, chances)
        assert expected_metric(METRICS[name], chances, calibration) == pytest.approx(truth, abs=0.02)


def test_many_classes_are_estimated_too() -> None:
    source = np.random.default_rng(0)
    chances = source.dirichlet([2, 1, 0.5], 10_000)
    target = (source.random((10_000, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
    calibration = fit_calibration(target, chances)
    assert calibration is not None
    for name in ("accuracy", "roc_auc", "log_loss"):
        truth = METRICS[name].value(target, chances)
        assert expected_metric(METRICS[name], chances, calibration) == pytest.approx(truth, abs=0.02)


def test_a_metric_of_your_own_is_the_mean_over_drawn_outcomes(tmp_path: Path) -> None:
    (tmp_path / "cost.py").write_text(
        "def cost(target, prediction):\n    return float(((prediction > 0.2) != target).mean())\n"
    )
    metric = resolve_metric("./cost.py:cost", "binary", tmp_path, "minimize")
    target, chances = honest(20_000, 1)
    calibration = fit_calibration(target, chances)
    assert calibration is not None
    found = expected_metric(metric, chances, calibration)
    assert found == pytest.approx(metric.value(target, chances), abs=0.01)
    assert found == expected_metric(metric, chances, calibration)
