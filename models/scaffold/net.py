"""The lines of a first spec for the net that its author names."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator


def net_lines(net: str) -> Iterator[str]:
    """Yield the `model` block; a reference has a colon, for which YAML and DVC need the quotes."""
    yield "model:"
    yield f"  net: {json.dumps(net)}"


def search_lines(searched: Collection[str]) -> Iterator[str]:
    """Yield the `search` block.

    Args:
        searched: The spec paths that are searched by default.
    """
    yield "search:"
    if searched:
        yield f"  trials: 10  # over {', '.join(searched)}"
        return
    yield "  # It has no usual search: it is trained with its own defaults. To search, set `trials: 10` and name"
    yield "  # arguments, as in `space: {model.alpha: {low: 0.001, high: 10.0, log: true}}`."
    yield "  trials: 0"
