"""Which stored records are needed, by what they name: the rule of `loopline gc`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

YOUNG = "younger than its retention, or of the last loops"
"""The reason of a node that is not old enough to go."""


class Node(NamedTuple):
    """A stored record that names others, such as a version, a loop, or the record of a step.

    Args:
        used: When it was written or used last; Unix time, seconds.
        names: What it needs: other nodes, or what has no record of its own, such as `data:3f2a`.
        root: Why it is needed by itself, such as `version 3 was champion`; empty if only others need it.
    """

    used: float
    names: tuple[str, ...] = ()
    root: str = ""


def needed(nodes: Mapping[str, Node], before: float) -> dict[str, str]:
    """Return why each name is needed; a name that is missing is garbage.

    Needed is each root, each node that was used at `before` or later, and whatever a needed node names.

    Args:
        nodes: The nodes by name.
        before: Unix time, seconds: what was used earlier goes, unless it is needed otherwise.

    Cost: linear in nodes and names.
    """
    roots = {name: node.root for name, node in nodes.items() if node.root}
    young = {name: YOUNG for name, node in nodes.items() if node.used >= before}
    reasons: dict[str, str] = {}
    for first in (roots, young):  # a root is the better reason
        queue = deque(first.items())
        while queue:
            name, reason = queue.popleft()
            if name not in reasons:
                reasons[name] = reason
                queue.extend((needed_name, reason) for needed_name in nodes.get(name, Node(0.0)).names)
    return reasons
