"""Draws the flowcharts of the site as SVG, so that they need no script and no network.

Zensical calls `fence` for every block of `mermaid` (`zensical.toml`). It reads the part of mermaid's flowcharts
that the pages use: `flowchart LR` or `TD`, nodes as `id`, `id[text]`, `id{text}`, edges as `a --> b`,
`a -- text --> b` and `a -. text .-> b`, also in chains. Nodes stand in layers by their longest way from a start.
"""

from __future__ import annotations

import html
import itertools
import re
import textwrap
from dataclasses import dataclass, field
from typing import Any

NODE = re.compile(r'\s*(\w+)(?:\["?(.*?)"?\]|\{(.*?)\})?\s*')
EDGE = re.compile(r"(-->|-\.->|--\s+(.*?)\s+-->|-\.\s+(.*?)\s+\.->)")
LETTER, LINE, PADDING, GAP, BETWEEN = 7.2, 17, 22, 22, 38
ROUND = 44
"""Room for an edge that leads back round the drawing."""
WIDEST = 24
"""Letters in a line of a node."""


@dataclass
class Node:
    """A box, a rhombus for a question, or without lines a bend of a long edge; `x` and `y` are its centre."""

    lines: list[str]
    is_question: bool = False
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    depth: float = 0.0
    """Extent of its layer in the direction of the edges."""

    @property
    def width(self) -> float:
        """Width in pixels."""
        if not self.lines:
            return 0
        return max(map(len, self.lines)) * LETTER + PADDING + (LINE * 1.6 if self.is_question else 0)

    @property
    def height(self) -> float:
        """Height in pixels."""
        if not self.lines:
            return 0
        return len(self.lines) * LINE + PADDING * 0.8 + (LINE if self.is_question else 0)


@dataclass
class Chart:
    """The nodes by their ids, and the edges: from, to, text, dashed."""

    is_across: bool
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: list[tuple[str, str, str, bool]] = field(default_factory=list)
    bends: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """The bends of an edge that passes layers: nodes without text."""

    def add_node(self, text: str) -> str:
        """Add a node, or the text of a known one, and return its id."""
        match = NODE.fullmatch(text)
        if match is None:
            raise ValueError(f"got {text!r}, expected `id`, `id[text]` or `id{{text}}`")
        name, box, question = match.groups()
        label = html.unescape(box or question or name)
        if name not in self.nodes or box or question:
            self.nodes[name] = Node(textwrap.wrap(label, max(WIDEST, len(label) // 3)), question is not None)
        return name


def read(source: str) -> Chart:
    """Return the chart of a block.

    Raises:
        ValueError: A line is not of the part of mermaid that is drawn here.
    """
    first, *lines = [line.strip() for line in source.strip().splitlines() if line.strip()]
    kind, _, direction = first.partition(" ")
    if kind != "flowchart" or direction not in ("LR", "TD"):
        raise ValueError(f"got {first!r}, expected `flowchart LR` or `flowchart TD`")
    chart = Chart(is_across=direction == "LR")
    for line in lines:
        parts = EDGE.split(line)
        names = [chart.add_node(parts[0])]
        for arrow, text, dashed_text, following in zip(parts[1::4], parts[2::4], parts[3::4], parts[4::4], strict=True):
            names.append(chart.add_node(following))
            chart.edges.append((names[-2], names[-1], text or dashed_text or "", arrow.startswith("-.")))
    return chart


def place(chart: Chart) -> tuple[float, float]:
    """Give every node its place, and return the width and the height of the drawing."""
    forward = _without_circles(chart)
    for _ in chart.nodes:
        for begin, end in forward:
            chart.nodes[end].layer = max(chart.nodes[end].layer, chart.nodes[begin].layer + 1)
    steps = _bent(chart, forward)
    layers: list[list[str]] = [[] for _ in range(1 + max(node.layer for node in chart.nodes.values()))]
    for name, node in chart.nodes.items():
        layers[node.layer].append(name)
    for number, layer in enumerate(layers[1:], 1):  # near their predecessors
        before = layers[number - 1]
        at = {name: [before.index(begin) for begin, end in steps if end == name] for name in layer}
        layer.sort(key=lambda name, at=at: sum(at[name]) / len(at[name]) if at[name] else 0.0)  # type: ignore[misc]
    along, spans = float(GAP), []
    for number, layer in enumerate(layers):
        nodes = [chart.nodes[name] for name in layer]
        depth = max(node.width if chart.is_across else node.height for node in nodes)
        offset = 0.0
        for node in nodes:
            breadth = node.height if chart.is_across else node.width
            centre, middle = offset + breadth / 2, along + depth / 2
            node.x, node.y = (middle, centre) if chart.is_across else (centre, middle)
            node.depth = depth
            offset += breadth + GAP
        spans.append(offset - GAP)
        along += depth + _room_for_texts(chart, number)
    for layer, span in zip(layers, spans, strict=True):
        shift = GAP + (max(spans) - span) / 2
        for name in layer:
            node = chart.nodes[name]
            node.x, node.y = (node.x, node.y + shift) if chart.is_across else (node.x + shift, node.y)
    goes_back = any(chart.nodes[begin].layer > chart.nodes[end].layer for begin, end, _, _ in chart.edges)
    length = along - _room_for_texts(chart, len(layers) - 1) + GAP
    breadth = max(spans) + 2 * GAP + (ROUND if goes_back else 0)
    return (length, breadth) if chart.is_across else (breadth, length)


def _room_for_texts(chart: Chart, layer: int) -> float:
    """Return the distance from a layer to the next one, in which the texts of the edges between them fit."""
    texts = [text for begin, _, text, _ in chart.edges if chart.nodes[begin].layer == layer]
    longest = max(map(len, texts), default=0)
    return max(BETWEEN, longest * LETTER + 24 if chart.is_across else BETWEEN * 1.5 * bool(longest))


def _bent(chart: Chart, forward: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Put a bend into every layer that an edge passes, so that it passes no box; return edges from layer to layer."""
    steps = []
    for begin, end in forward:
        passed = range(chart.nodes[begin].layer + 1, chart.nodes[end].layer)
        bends = [f"{begin} {end} {layer}" for layer in passed]
        for name, layer in zip(bends, passed, strict=True):
            chart.nodes[name] = Node([], layer=layer)
        chart.bends[begin, end] = bends
        steps += list(itertools.pairwise([begin, *bends, end]))
    return steps


def _without_circles(chart: Chart) -> list[tuple[str, str]]:
    """Return the edges that do not lead back to a node that was met before on the same way."""
    kept: list[tuple[str, str]] = []
    done: set[str] = set()

    def walk(name: str, way: tuple[str, ...]) -> None:
        for begin, end, _, _ in chart.edges:
            if begin == name and end not in (*way, name):
                kept.append((begin, end))
                if end not in done:
                    walk(end, (*way, name))
        done.add(name)

    for name in chart.nodes:
        if name not in done:
            walk(name, ())
    return list(dict.fromkeys(kept))


LEAST_WIDTH = 640
"""Pixels below which a wide drawing is scrolled, not made smaller: on a telephone its words were five pixels high."""


def draw(source: str) -> str:
    """Return the SVG of a block, with its edges in words as the alternative text."""
    chart = read(source)
    width, height = place(chart)
    boxes = [_box(node) for node in chart.nodes.values() if node.lines]
    shapes = [edge_of(chart, *edge) for edge in chart.edges] + boxes
    words = "; ".join(
        f"{' '.join(chart.nodes[begin].lines)} to {' '.join(chart.nodes[end].lines)}{f' ({text})' if text else ''}"
        for begin, end, text, _ in chart.edges
    )
    return (
        '<div style="overflow-x:auto">'
        f'<svg class="drawing" role="img" aria-label="{html.escape(words, quote=True)}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px;width:100%;'
        f'min-width:{min(width, LEAST_WIDTH):.0f}px" '
        'font-family="sans-serif" font-size="13" fill="none" '
        'stroke="currentColor"><defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" '
        'fill="currentColor" stroke="none"/>'
        f"</marker></defs>{''.join(shapes)}</svg></div>"
    )


def _box(node: Node) -> str:
    x, y, across, down = node.x, node.y, node.width / 2, node.height / 2
    if node.is_question:
        points = f"{x - across:.0f},{y:.0f} {x:.0f},{y - down:.0f} {x + across:.0f},{y:.0f} {x:.0f},{y + down:.0f}"
        shape = f'<polygon points="{points}"'
    else:
        shape = f'<rect x="{x - across:.0f}" y="{y - down:.0f}" width="{2 * across:.0f}" height="{2 * down:.0f}" rx="5"'
    top = y - (len(node.lines) - 1) * LINE / 2 + 4.5
    return f'{shape} style="fill:var(--md-default-bg-color)"/>' + "".join(
        _text(line, x, top + number * LINE) for number, line in enumerate(node.lines)
    )


def edge_of(chart: Chart, begin: str, end: str, text: str, is_dashed: bool) -> str:
    """Return the path of an edge between nodes that have their places, and its text."""
    first, last = chart.nodes[begin], chart.nodes[end]
    style = ' stroke-dasharray="5 4"' if is_dashed else ""
    if first is last:
        x, y = first.x + first.width / 2, first.y
        path = f"M{x - 24:.0f} {y - first.height / 2:.0f}c0 -22 34 -22 24 {first.height / 2 - 6:.0f}"
    else:
        stops = [first, *(chart.nodes[name] for name in chart.bends.get((begin, end), ())), last]
        path = "".join(_curve(chart.is_across, *pair) for pair in itertools.pairwise(stops))
        last = stops[1]
    middle = (first.x + last.x) / 2, (first.y + last.y) / 2 + 4
    if chart.is_across and last.x > first.x:
        middle = first.x + first.depth / 2 + 12 + len(text) * LETTER / 2, middle[1]
    elif chart.is_across:
        middle = middle[0], max(first.y + first.height / 2, last.y + last.height / 2) + ROUND * 0.75 + 4
    label = _text(text, *middle, halo=True) if text else ""
    return f'<path d="{path}" marker-end="url(#arrow)"{style}/>{label}'


def _curve(is_across: bool, first: Node, last: Node) -> str:
    """Return a curve between the facing sides; an edge that leads back goes round by the far sides.

    It bends between the layers only, and is straight beside the wider boxes of its own ones.
    """
    if is_across:
        sign = 1 if last.x > first.x else -1
        x1, x2 = first.x + sign * first.width / 2, last.x - sign * last.width / 2
        from_x, to_x = first.x + sign * first.depth / 2, last.x - sign * last.depth / 2
        middle = (from_x + to_x) / 2
        if sign < 0:
            y1, y2 = first.y + first.height / 2, last.y + last.height / 2
            return (
                f"M{first.x:.0f} {y1:.0f}C{first.x:.0f} {y1 + 40:.0f} {last.x:.0f} {y2 + 40:.0f} {last.x:.0f} {y2:.0f}"
            )
        return (
            f"M{x1:.0f} {first.y:.0f}L{from_x:.0f} {first.y:.0f}"
            f"C{middle:.0f} {first.y:.0f} {middle:.0f} {last.y:.0f} {to_x:.0f} {last.y:.0f}"
            + (f"L{x2:.0f} {last.y:.0f}" if round(to_x) != round(x2) else "")  # no line, no direction of the arrow
        )
    sign = 1 if last.y > first.y else -1
    y1, y2 = first.y + sign * first.height / 2, last.y - sign * last.height / 2
    from_y, to_y = first.y + sign * first.depth / 2, last.y - sign * last.depth / 2
    middle = (from_y + to_y) / 2
    return (
        f"M{first.x:.0f} {y1:.0f}L{first.x:.0f} {from_y:.0f}"
        f"C{first.x:.0f} {middle:.0f} {last.x:.0f} {middle:.0f} {last.x:.0f} {to_y:.0f}"
        + (f"L{last.x:.0f} {y2:.0f}" if round(to_y) != round(y2) else "")
    )


def _text(text: str, x: float, y: float, halo: bool = False) -> str:
    paint = "stroke:var(--md-default-bg-color);stroke-width:4;paint-order:stroke" if halo else "stroke:none"
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="middle"'
    return f'<text {place} style="fill:currentColor;{paint}">{html.escape(text)}</text>'


def fence(source: str, language: str, css_class: str, options: Any, md: Any, **_: Any) -> str:
    """Return a block for pymdownx.superfences."""
    return draw(source)
