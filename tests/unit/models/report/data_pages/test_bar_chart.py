"""Bars lie in their chart, are stacked by group, and are told to those who cannot see them."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from models.report.data_pages.bar_chart import HEIGHT, WIDTH, side_by_side, stacked


def bars(svg: str) -> list[dict[str, float]]:
    return [
        {name: float(bar.attrib[name]) for name in ("x", "y", "width", "height")}
        for bar in ElementTree.fromstring(svg).iter("rect")
    ]


@pytest.mark.parametrize("groups", [[[0, 0]], [[1, 2, 3]], [[5] * 40, [0, 1] * 20], [[]]])
def test_every_bar_lies_in_the_chart(groups: list[list[float]]) -> None:
    drawn = bars(stacked(groups, "x"))
    assert len(drawn) == sum(count > 0 for group in groups for count in group)
    for bar in drawn:
        assert 0 <= bar["x"] <= bar["x"] + bar["width"] <= WIDTH
        assert 0 <= bar["y"] <= bar["y"] + bar["height"] <= HEIGHT + 0.51


def test_groups_are_stacked_and_pairs_stand_beside_each_other() -> None:
    first, second = bars(stacked([[3], [1]], "x"))
    assert second["y"] + second["height"] == pytest.approx(first["y"])
    assert first["height"] == pytest.approx(3 * second["height"], rel=0.01)
    before, after = bars(side_by_side([1.0], [0.5], "x"))
    assert before["x"] < after["x"]


def test_a_label_is_escaped() -> None:
    assert 'aria-label="&lt;b&gt;&#34;"' in stacked([[1]], '<b>"')
