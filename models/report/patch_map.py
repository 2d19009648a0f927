"""Patches of a picture, coloured by what they add to a prediction, as an SVG above the picture in the page itself."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from models.report.pages import show
from models.serving.playground_form import OccludedPart

MOST_SPOKEN = 3
"""Patches that a reader hears who cannot see the picture."""
DEEPEST = 0.75
"""How much of the picture the colour of the strongest patch covers."""
_MAP = Markup(
    '<svg class="tried map" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
    '<image width="{width}" height="{height}" href="data:image/png;base64,{picture}"/>{patches}</svg>'
)
_PATCH = Markup(
    '<rect class="c{colour}" x="{x}" y="{y}" width="{width}" height="{height}" fill-opacity="{depth}">'
    "<title>{change}</title></rect>"
)


def patch_map(picture: str, parts: Sequence[OccludedPart], title: str) -> Markup:
    """Return a picture with its patches: those that add are of the first colour, those that take away of the second.

    Args:
        picture: A PNG in base64.
        parts: The patches, of which the lowest right one ends where the picture does.
        title: What a reader hears first who cannot see the picture.
    """
    boxes = [(part.box or (0, 0, 0, 0), part.change) for part in parts]
    width, height = (max(box[axis] + box[axis + 2] for box, _ in boxes) for axis in (0, 1))
    most = max(abs(change) for _, change in boxes) or 1.0
    patches = [
        _PATCH.format(
            colour=int(change < 0),
            **dict(zip(("x", "y", "width", "height"), box, strict=True)),
            depth=round(DEEPEST * abs(change) / most, 3),
            change=show(change),
        )
        for box, change in boxes
    ]
    strongest = sorted(boxes, key=lambda pair: -abs(pair[1]))[:MOST_SPOKEN]
    spoken = (
        f"{show(change)} at {x} to {x + wide} across, {y} to {y + high} down"
        for (x, y, wide, high), change in strongest
    )
    label = f"{title}: {'; '.join(spoken)}"
    return _MAP.format(width=width, height=height, label=label, picture=picture, patches=Markup().join(patches))
