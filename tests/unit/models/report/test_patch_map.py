"""A picture with what its patches add: the strongest is the deepest, and each says its value."""

from __future__ import annotations

from models.report.patch_map import DEEPEST, patch_map
from models.serving.playground_form import OccludedPart


def test_patches_have_the_colour_of_their_sign_and_the_depth_of_their_size() -> None:
    parts = [OccludedPart(box=(0, 0, 2, 3), change=0.5), OccludedPart(box=(2, 0, 2, 3), change=-0.25)]
    svg = patch_map("AAAA", parts, "What <it> adds")
    assert 'viewBox="0 0 4 3"' in svg
    assert f'<rect class="c0" x="0" y="0" width="2" height="3" fill-opacity="{DEEPEST}"><title>0.5</title>' in svg
    assert f'<rect class="c1" x="2" y="0" width="2" height="3" fill-opacity="{DEEPEST / 2}"><title>−0.25</title>' in svg
    assert "What &lt;it&gt; adds: 0.5 at 0 to 2 across, 0 to 3 down; −0.25 at 2 to 4" in svg


def test_a_picture_of_which_no_part_adds_anything_is_shown_as_it_is() -> None:
    assert 'fill-opacity="0.0"' in patch_map("AAAA", [OccludedPart(box=(0, 0, 2, 3), change=0.0)], "What it adds")
