"""Named bars begin at zero, to its right or left; small ones lie in their chart and are stacked by group."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from models.inference.box import Box
from models.report.bar_chart import DEEPEST, SMALL_HEIGHT, SMALL_WIDTH, Bar, bar_chart, patch_map, side_by_side, stacked


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


def bars(svg: str) -> list[dict[str, float]]:
    return [
        {name: float(bar.attrib[name]) for name in ("x", "y", "width", "height")}
        for bar in ET.fromstring(svg).iter("rect")
    ]


@pytest.mark.parametrize("groups", [[[0, 0]], [[1, 2, 3]], [[5] * 40, [0, 1] * 20], [[]]])
def test_every_bar_lies_in_the_chart(groups: list[list[float]]) -> None:
    drawn = bars(stacked(groups, "x"))
    assert len(drawn) == sum(count > 0 for group in groups for count in group)
    for bar in drawn:
        assert 0 <= bar["x"] <= bar["x"] + bar["width"] <= SMALL_WIDTH
        assert 0 <= bar["y"] <= bar["y"] + bar["height"] <= SMALL_HEIGHT + 0.51


def test_groups_are_stacked_and_pairs_stand_beside_each_other() -> None:
    first, second = bars(stacked([[3], [1]], "x"))
    assert second["y"] + second["height"] == pytest.approx(first["y"])
    assert first["height"] == pytest.approx(3 * second["height"], rel=0.01)
    before, after = bars(side_by_side([1.0], [0.5], "x"))
    assert before["x"] < after["x"]


def test_a_label_is_escaped() -> None:
    assert 'aria-label="&lt;b&gt;&#34;"' in stacked([[1]], '<b>"')


def test_patches_have_the_colour_of_their_sign_and_the_depth_of_their_size() -> None:
    patches = [(Box(0, 0, 2, 3), 0.5), (Box(2, 0, 2, 3), -0.25)]
    svg = patch_map("AAAA", patches, "What <it> adds")
    assert 'viewBox="0 0 4 3"' in svg
    assert f'<rect class="c0" x="0" y="0" width="2" height="3" fill-opacity="{DEEPEST}"><title>0.5</title>' in svg
    assert f'<rect class="c1" x="2" y="0" width="2" height="3" fill-opacity="{DEEPEST / 2}"><title>−0.25</title>' in svg
    assert "What &lt;it&gt; adds: 0.5 at 0 to 2 across, 0 to 3 down; −0.25 at 2 to 4" in svg


def test_a_picture_of_which_no_part_adds_anything_is_shown_as_it_is() -> None:
    assert 'fill-opacity="0.0"' in patch_map("AAAA", [(Box(0, 0, 2, 3), 0.0)], "What it adds")
