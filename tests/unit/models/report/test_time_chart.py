"""Charts are well-formed, scaled to what they show, and escape what they are given."""

import itertools
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.judge.verdict import Estimate
from models.report.time_chart import HEIGHT, WIDTH, AxisScale, metric_chart, spark, ticks, volume_chart
from tests.told_facts import NOW, window


def classes(svg: str) -> list[str]:
    return [each.get("class", "") for each in ET.fromstring(svg).iter()]


def test_measured_estimated_and_decayed_windows_are_told_apart() -> None:
    windows = [window(1), window(2), window(3, decayed=True)]
    found = classes(metric_chart(windows, "roc_auc", (0.72, 0.74)))
    assert found.count("first dot") == 2
    assert found.count("bad dot") == 1
    assert "second" in found
    assert "band" in found


def test_everything_lies_on_the_picture() -> None:
    windows = [window(number, realised=Estimate(value=0.1 * number, low=0.0, high=1.5)) for number in range(9)]
    for circle in ET.fromstring(metric_chart(windows, "roc_auc")).iter("circle"):
        assert 0 <= float(circle.get("cx", -1)) <= WIDTH
        assert 0 <= float(circle.get("cy", -1)) <= HEIGHT


def test_nothing_to_show_is_no_picture() -> None:
    silent = [window(number, realised=None, estimated=None) for number in range(3)]
    assert metric_chart(silent, "roc_auc") == spark(silent, "roc_auc") == ""
    assert volume_chart([window(1)]) == spark([window(1)], "roc_auc") == ""


def test_one_window_stands_in_the_middle() -> None:
    (circle,) = ET.fromstring(metric_chart([window(1)], "roc_auc")).iter("circle")
    assert float(circle.get("cx", 0)) == pytest.approx((68 + 6 + 700 - 12 - 6) / 2)


@given(st.text())
def test_a_hostile_name_stays_text(name: str) -> None:
    printable = "".join(letter if letter.isprintable() else " " for letter in f'"><script>{name}')
    svg = metric_chart([window(1), window(2)], printable)
    assert ET.fromstring(svg).get("aria-label", "").startswith('"><script>')
    assert ET.fromstring(spark([window(1), window(2)], printable)).tag == "svg"


def test_bars_are_as_high_as_there_were_predictions_in_their_span() -> None:
    windows = [window(1, num_predictions=1000), window(4, num_predictions=250), window(4, num_predictions=250)]
    picture = ET.fromstring(volume_chart(windows))
    heights = [float(bar.get("height", 0)) for bar in picture.iter("rect")]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.2)
    assert picture.get("aria-label") == "1500 predictions, by day"


def test_many_windows_of_one_burst_stand_apart() -> None:
    burst = [window(1, begin=NOW, end=NOW + number / 100) for number in range(5)]
    places = [float(dot.get("cx", 0)) for dot in ET.fromstring(metric_chart(burst, "roc_auc")).iter("circle")]
    assert all(later - earlier > 50 for earlier, later in itertools.pairwise(places))
    assert volume_chart(burst) == ""


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_round_and_inside(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert len(found) <= 7
    assert all(low - 1e-6 * span - 1e-9 <= tick <= low + span * (1 + 1e-6) + 1e-9 for tick in found)


def test_a_scale_of_one_value_does_not_divide_by_zero() -> None:
    assert AxisScale(3.0, 3.0, 0.0, 10.0).at(3.0) == 0.0
