"""A patch of a picture; in a file of its own since pages read it, whose server imports no numpy."""

from __future__ import annotations

from typing import NamedTuple


class Box(NamedTuple):
    """A patch of a picture, in pixels from its upper left corner."""

    across: int
    down: int
    width: int
    height: int
