import numpy as np
import pytest

from models.judge.verdict import Estimate
from models.metrics.metrics import METRICS
from models.monitoring.performance import is_decayed, realised
from models.project_spec.monitor_and_retrain import Monitor

AUC, MAE = METRICS["roc_auc"], METRICS["mae"]


def labelled(num: int) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(0)
    chances = source.random(num)
    return (source.random(num) < chances).astype(np.int64), chances


def test_the_interval_lies_around_the_metric_and_narrows_with_labels() -> None:
    few, many = (realised(AUC, *labelled(num), Monitor()) for num in (300, 3000))
    assert few is not None
    assert many is not None
    for found, num in ((few, 300), (many, 3000)):
        assert found.value == pytest.approx(AUC.value(*labelled(num)))
        assert found.low < found.value < found.high
    assert many.high - many.low < (few.high - few.low) / 2


def test_too_few_labels_or_one_class_are_no_metric() -> None:
    assert realised(AUC, *labelled(99), Monitor()) is None
    assert realised(AUC, np.ones(500, np.int64), np.linspace(0, 1, 500), Monitor()) is None


@pytest.mark.parametrize(
    ("now", "promoted", "margin", "decayed"),
    [
        ((0.70, 0.69, 0.71), (0.73, 0.72, 0.74), 0.0, True),
        ((0.70, 0.69, 0.725), (0.73, 0.72, 0.74), 0.0, False),
        ((0.70, 0.69, 0.71), (0.73, 0.72, 0.74), 0.02, False),
        ((0.90, 0.89, 0.91), (0.73, 0.72, 0.74), 0.0, False),
        ((0.70, 0.69, 0.71), (0.73, None, None), 0.0, True),
        ((0.70, None, None), (0.73, 0.72, 0.74), 0.0, False),
    ],
)
def test_decay_is_a_whole_interval_under_a_whole_interval(now, promoted, margin, decayed) -> None:
    def estimate(told, sign=1):
        value, low, high = (None if each is None else sign * each for each in told)
        return Estimate(value=value, low=low if sign > 0 else high, high=high if sign > 0 else low)

    assert is_decayed(AUC, estimate(now), estimate(promoted), margin) is decayed
    assert is_decayed(MAE, estimate(now, -1), estimate(promoted, -1), margin) is decayed


def test_nothing_decays_without_labels_or_verdict() -> None:
    assert not is_decayed(AUC, None, Estimate(value=0.7), 0.0)
    assert not is_decayed(AUC, Estimate(value=0.1, low=0.0, high=0.2), None, 0.0)
