"""Charts are SVG without colours of their own; whoever cannot see one hears its last values."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from models.report.line_chart import MOST_POINTS, WIDTH, Line, line_chart, lines_of


def drawn(*lines: Line) -> ET.Element:
    return ET.fromstring(line_chart(lines, "Loss", "epoch"))


def points(chart: ET.Element) -> list[list[float]]:
    return [
        [float(end) for end in point.split(",")]
        for line in chart.iter("polyline")
        for point in line.get("points", "").split()
    ]


def test_a_chart_says_what_it_shows() -> None:
    chart = drawn(*lines_of({"val_loss": {2: 0.25, 1: 0.5}, "<b>": {1: 1.0}}, ["val_loss", "<b>"]))
    assert chart.get("aria-label") == "Loss up to epoch 2: val_loss 0.25; <b> 1"
    assert [group.get("class") for group in chart.iter("g")] == ["c0", "c1"]
    assert not [part for part in chart.iter() if part.get("style") or part.get("fill") or part.get("stroke")]


@pytest.mark.parametrize(
    "values", [[0.0], [3.0, 3.0], [1e-9, 2e-9], [-5.0, 1e6], [float(number % 7) for number in range(5000)]]
)
def test_every_line_fits_into_its_chart(values: list[float]) -> None:
    placed = points(drawn(Line("a", [*enumerate(values)])))
    assert 0 < len(placed) <= MOST_POINTS + 1
    assert all(0 <= across <= WIDTH for across, _ in placed)
    assert all(0 <= down <= 190 for _, down in placed)


def test_the_last_point_is_never_thinned_out() -> None:
    chart = drawn(Line("a", [*enumerate([0.0] * 999 + [1.0])]))
    assert points(chart)[-1] == [WIDTH - 8, 8.0]


def test_an_interval_is_a_line_that_the_scale_has_room_for() -> None:
    (band,) = [
        part
        for part in drawn(Line("a", [(1, 0.5), (2, 0.6)], [(1, 0.0, 1.0)])).iter("line")
        if part.get("class") == "band c0"
    ]
    assert float(band.get("y1", 0)) > float(band.get("y2", 0)) >= 0
