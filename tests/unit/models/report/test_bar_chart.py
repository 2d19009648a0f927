"""Bars begin at zero, to the right of it or to the left, and names of columns stand in them as text."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from models.report.bar_chart import Bar, bar_chart


def test_bars_begin_at_zero_on_their_side() -> None:
    chart = ET.fromstring(bar_chart([Bar("a", 2.0, 1.0, 3.0), Bar("<b>", -1.0)], "worth"))
    right, left = (part for part in chart.iter("rect"))
    assert float(right.attrib["x"]) == float(left.attrib["x"]) + float(left.attrib["width"])
    assert float(right.attrib["width"]) == 2 * float(left.attrib["width"])
    assert [right.attrib["class"], left.attrib["class"]] == ["c0", "c1"]
    assert len([part for part in chart.iter("line") if part.get("class") == "whisker"]) == 1
    assert chart.attrib["aria-label"] == "worth: a 2; <b> −1"


def test_bars_of_nothing_are_drawn() -> None:
    assert "<svg" in bar_chart([Bar("a", 0.0)], "worth")
