"""How the GPUs of a machine are linked, as `nvidia-smi topo -m` prints it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations

# From the fastest to the slowest. NV# is NVLink; PIX, PXB and PHB are PCIe within one processor's tree; NODE and SYS
# cross host bridges or processors. Source: the legend of `nvidia-smi topo -m`.
SLOW = ("NODE", "SYS")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_NAME = re.compile(r"GPU(\d+)")

Links = Mapping[tuple[int, int], str]
"""The kind of link by the numbers of two GPUs, the smaller first."""


def read_links(text: str) -> Links:
    """Return the links between GPUs in the matrix of `nvidia-smi topo -m`; none if it holds no such matrix."""
    lines = [_COLOURS.sub("", line).split() for line in text.splitlines()]
    header = next((line for line in lines if line and _NAME.fullmatch(line[0]) and "X" not in line), None)
    if header is None:
        return {}
    columns = [int(match[1]) for name in header if (match := _NAME.fullmatch(name))]
    links = {}
    for line in lines:
        row = _NAME.fullmatch(line[0]) if line else None
        if row is None or line is header:
            continue
        for column, kind in zip(columns, line[1:], strict=False):
            if int(row[1]) < column:
                links[int(row[1]), column] = kind
    return links


def fast_groups(links: Links) -> list[list[int]]:
    """Return the GPUs in groups within which no link is slow, the largest group first."""
    numbers = sorted({number for pair in links for number in pair})
    groups: list[list[int]] = []
    for number in numbers:
        fitting = (
            group for group in groups if all(links.get((group_member, number)) not in SLOW for group_member in group)
        )
        group = next(fitting, None)
        if group is None:
            groups.append([number])
        else:
            group.append(number)
    return sorted(groups, key=lambda group: (-len(group), group))


def slowest_link(links: Links, ranks: int) -> tuple[int, int, str] | None:
    """Return a slow link that ranks on the first GPUs would cross, with its kind; None if there is none."""
    for first, second in combinations(range(ranks), 2):
        kind = links.get((first, second), "")
        if kind in SLOW:
            return first, second, kind
    return None
