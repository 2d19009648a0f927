"""The limits of metrics agree with their values."""

import pytest

from models.metrics.limits import LIMITS, within_limits
from models.metrics.metrics import METRICS


def test_every_limit_is_of_a_metric_and_its_best_value_is_one_of_them():
    assert set(LIMITS) <= set(METRICS)
    assert {name: (METRICS[name].range.low, METRICS[name].range.high) for name in LIMITS} == LIMITS
    assert METRICS["mae"].range is None


@pytest.mark.parametrize(
    ("metric", "ends", "cut"),
    [("roc_auc", (0.9, 1.1), (0.9, 1.0)), ("brier", (-0.1, 1.1), (0.0, 1.1)), ("rmse", (-1.0, 9.0), (-1.0, 9.0))],
)
def test_an_axis_ends_where_the_metric_does(metric, ends, cut):
    assert within_limits(metric, *ends) == cut
