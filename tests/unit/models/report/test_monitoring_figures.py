from xml.etree import ElementTree

import pytest

from models.judge.verdict import Estimate
from models.monitoring.report import WindowReport
from models.report.monitoring_figures import feature_map, metric_over_time, prediction_drift
from tests.unit.models.monitoring.conftest import decayed, drift, window

pytestmark = pytest.mark.usefixtures("pictures")

PROMOTED = Estimate(value=0.73, low=0.72, high=0.74)
MEASURED = {"realised": Estimate(value=0.72, low=0.7, high=0.74), "estimated": 0.71, "num_measured": 900}
WINDOWS = [
    window(0, **MEASURED, features=[drift("temp", 0.3, "strong"), drift("wind", 0.01)]),
    window(1, features=[drift("wind", 0.02)], predictions=[drift(psi=0.4, level="strong")]),
    decayed(2),
]


def texts(svg: bytes) -> str:
    return " ".join(ElementTree.fromstring(svg).itertext())


def test_the_metric_is_drawn_with_promotion_estimate_and_decay() -> None:
    told = texts(metric_over_time(WINDOWS, "roc_auc", PROMOTED))
    for words in ("roc_auc", "at promotion", "realised", "decayed", "estimated", "01 Jan"):
        assert words in told


def test_the_score_is_drawn_against_its_limit() -> None:
    told = texts(prediction_drift(WINDOWS))
    for words in ("PSI against the test rows", "limit", "score", "drifts"):
        assert words in told


def test_the_furthest_features_are_named_and_few() -> None:
    assert "temp" in texts(feature_map(WINDOWS))
    many = window(0, features=[drift(f"column {place}", place / 100) for place in range(40)])
    told = texts(feature_map([many]))
    assert "column 39" in told
    assert "column 3 " not in told


@pytest.mark.parametrize(
    "windows",
    [[window(0)], [window(0), window(0)], [decayed(number) for number in range(90)]],
    ids=["one", "same", "many"],
)
def test_one_window_windows_of_one_time_and_many_can_be_drawn(windows: list[WindowReport]) -> None:
    for svg in (metric_over_time(windows, "mae", None), prediction_drift(windows)):
        assert svg.startswith(b"<?xml")
