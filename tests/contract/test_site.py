"""The site: each page has its place and its next one, and the commands that pages show exist with their options."""

from __future__ import annotations

import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from flows.cli import COMMANDS, loopline
from infra.documentation import page_pictures
from infra.documentation.drawing import draw, edge_of, place, read
from models.pipeline.steps import STEPS
from tests.contract.test_names import PRIVATE_WORDS

LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"(?:^(?:    |\$ )?|`|&& |\()(?:\w+=\S+ )*(?:\.venv/bin/)?(loopline [^`\n]*)", re.MULTILINE)
PLACEHOLDERS = {"COMMAND"}
QUICKSTART_WORDS = 300
IMAGES = {"gang", "nursery", "lookout", "courier", "shelf", "shelves", "pulse"} & PRIVATE_WORDS
"""Words that once stood for a rank pool, a fork server and others; the rest of the list are everyday words in prose."""


def pages_of(nav: Any) -> Iterator[str]:
    """The pages of a navigation, in order."""
    match nav:
        case str():
            yield nav
        case dict():
            for value in nav.values():
                yield from pages_of(value)
        case _:
            for value in nav:
                yield from pages_of(value)


@pytest.fixture(scope="module")
def docs(root: Path) -> Path:
    return root / "docs"


@pytest.fixture(scope="module")
def nav(root: Path) -> list[str]:
    return list(pages_of(tomllib.loads((root / "zensical.toml").read_text())["project"]["nav"]))


def test_every_page_has_one_place(docs: Path, nav: list[str]) -> None:
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    records = {page for page in pages if re.fullmatch(r"decisions/\d{4}-.*", page)}
    assert sorted(nav) == sorted(pages - records)


def test_every_page_has_a_title_and_ends_with_a_link_to_the_next(docs: Path, nav: list[str]) -> None:
    for page in nav:
        lines = (docs / page).read_text().rstrip().splitlines()
        assert lines[0].startswith("# "), page
        assert re.fullmatch(r"Next: \[[^]]+\]\([^)]+\.md\)", lines[-1]), page


def test_no_link_leaves_the_site(docs: Path) -> None:
    outside = [
        f"{page.relative_to(docs)}: {to}"
        for page in docs.rglob("*.md")
        for to in LINK.findall(page.read_text())
        if not (page.parent / to).resolve().is_relative_to(docs)
    ]
    assert outside == []


def test_every_concept_has_a_drawing(docs: Path) -> None:
    pages = [path for path in (docs / "concepts").glob("*.md") if path.name not in ("index.md", "glossary.md")]
    assert len(pages) == 10
    assert [path.name for path in pages if "```mermaid\n" not in path.read_text()] == []


def test_files_of_tests_that_pages_name_exist(root: Path, docs: Path) -> None:
    named = {name for page in docs.rglob("*.md") for name in re.findall(r"`(tests/[\w/.]+)`", page.read_text())}
    assert len(named) > 20
    assert sorted(name for name in named if not (root / name).exists()) == []


def drawings(docs: Path) -> list[str]:
    return [
        source for page in docs.rglob("*.md") for kind, source in FENCE.findall(page.read_text()) if kind == "mermaid"
    ]


def test_boxes_of_a_drawing_stand_apart_and_inside(docs: Path) -> None:
    assert len(drawings(docs)) > 10
    for source in drawings(docs):
        chart = read(source)
        width, height = place(chart)
        boxes = [node for node in chart.nodes.values() if node.lines]
        for node in boxes:
            assert node.width / 2 <= node.x <= width - node.width / 2, (source, node)
            assert node.height / 2 <= node.y <= height - node.height / 2, (source, node)
        for one, other in itertools.combinations(boxes, 2):
            is_apart = abs(one.x - other.x) >= (one.width + other.width) / 2
            assert is_apart or abs(one.y - other.y) >= (one.height + other.height) / 2, (source, one, other)


def points_of(path: str) -> Iterator[tuple[float, float]]:
    """Points of a drawn path."""
    at: list[float] = []
    for kind, numbers in re.findall(r"([MLC])([-\d. ]+)", path):
        values = [float(number) for number in numbers.split()]
        controls = [at, at, values, values] if kind == "L" else [at, values[:2], values[2:4], values[4:]]
        for step in range(0 if kind == "M" else 50):
            t = step / 50
            shares = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
            x, y = (sum(share * point[axis] for share, point in zip(shares, controls, strict=True)) for axis in (0, 1))
            yield x, y
        at = values[-2:]


def test_no_edge_of_a_drawing_passes_a_box_of_others(docs: Path) -> None:
    """The edge from policy to loop passed behind a box, and seemed to begin there."""
    for source in drawings(docs):
        chart = read(source)
        place(chart)
        for begin, end, text, is_dashed in chart.edges:
            if chart.nodes[begin].layer >= chart.nodes[end].layer:
                continue
            others = [node for name, node in chart.nodes.items() if node.lines and name not in (begin, end)]
            path = re.search(r'd="([^"]+)"', edge_of(chart, begin, end, text, is_dashed))
            assert path
            *_, before, last = re.findall(r"[-\d.]+ [-\d.]+", path[1])
            assert before != last, f"{begin} to {end}: its last line has no length, so its arrow has no direction"
            for x, y in points_of(path[1]):
                for box in others:
                    is_inside = abs(x - box.x) < box.width / 2 - 1 and abs(y - box.y) < box.height / 2 - 1
                    assert not is_inside, f"{begin} to {end} passes {' '.join(box.lines)}"


def test_the_drawing_of_the_loop_is_the_table_of_the_steps(docs: Path) -> None:
    (source,) = [text for kind, text in FENCE.findall((docs / "concepts" / "loop-and-steps.md").read_text())]
    chart = read(source)
    names = {key: " ".join(node.lines) for key, node in chart.nodes.items()}
    assert set(names.values()) == {step.name for step in STEPS}
    inputs = {(before, step.name) for step in STEPS for before in step.after}
    assert {(names[begin], names[end]) for begin, end, _, is_gate in chart.edges if not is_gate} <= inputs


def test_a_drawing_has_its_edges_as_alternative_text() -> None:
    svg = draw("flowchart LR\n  a[the data] -- a reason --> b{right?}\n  b -. no .-> a\n")
    assert 'role="img" aria-label="the data to right? (a reason); right? to the data (no)"' in svg
    assert svg.count("<rect") == svg.count("<polygon") == svg.count("stroke-dasharray") == 1
    with pytest.raises(ValueError, match="expected `flowchart LR`"):
        draw("sequenceDiagram")


def test_the_quickstart_is_short(docs: Path) -> None:
    assert len(PICTURE.sub("", (docs / "start" / "quickstart.md").read_text()).split()) <= QUICKSTART_WORDS


def test_no_page_has_a_private_word(docs: Path) -> None:
    pages = [path for path in docs.rglob("*.md") if path.parent.name != "decisions"]
    hits = {
        str(path.relative_to(docs)): sorted(IMAGES & set(re.findall(r"[a-z]+", path.read_text().lower())))
        for path in pages
    }
    assert {page: words for page, words in hits.items() if words} == {}


def calls(text: str) -> list[list[str]]:
    """The arguments of every `loopline` command that a page shows."""
    joined = text.replace("\\\n", " ")
    shown = [match.split(" #")[0].split(" && ")[0].split("   ")[0] for match in CALL.findall(joined)]
    return [arguments for line in shown if (arguments := shlex.split(line.split(")")[0] if "$(" in text else line)[1:])]


def wrong(arguments: list[str]) -> str | None:
    """What of a command does not exist: itself, or an option."""
    name, rest = arguments[0].rstrip(".,;:"), arguments[1:]
    if name.startswith("-") or name in PLACEHOLDERS or name.isupper():
        return None
    command = loopline.get_command(click.Context(loopline), name)
    if command is None:
        return f"loopline {name}"
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    options = [part.partition("=")[0].rstrip(".,;:") for part in rest if part.startswith("--")]
    unknown = [option for option in options for part in option.strip("[]").split("|") if part not in known]
    return f"loopline {name} {' '.join(unknown)}" if unknown else None


def test_commands_on_pages_exist_with_their_options(root: Path, docs: Path) -> None:
    pages = [root / "README.md", root / "CONTRIBUTING.md", *docs.rglob("*.md"), *root.glob("examples/*/README.md")]
    mistakes = {
        str(path.relative_to(root)): found
        for path in pages
        if "decisions" not in path.parts
        and (found := [text for arguments in calls(path.read_text()) if (text := wrong(arguments))])
    }
    assert mistakes == {}


def test_the_check_sees_commands_and_options() -> None:
    assert calls("    FOO=1 loopline run flights --json\n`loopline plan x`\n$ loopline up\n") == [
        ["run", "flights", "--json"],
        ["plan", "x"],
        ["up"],
    ]
    assert wrong(["run", "flights", "--jsn"]) == "loopline run --jsn"
    assert wrong(["runs"]) == "loopline runs"
    assert all(wrong([name]) is None for name in COMMANDS)


def test_pictures_of_pages_are_there_small_and_described(docs: Path) -> None:
    """Which pages they show: `tests/integration/test_links.py` meets each of them."""
    files = {path.name: path.stat().st_size for path in page_pictures.FOLDER.iterdir()}
    assert {*files} == {f"{name}.webp" for name in page_pictures.SHOWN}, "make pictures"
    assert {name: size for name, size in files.items() if size >= page_pictures.MOST_BYTES} == {}
    named = set[str]()
    for page in sorted(docs.rglob("*.md")):
        for text, target in PICTURE.findall(page.read_text()):
            assert len(text.split()) > 3, f"{page.name}: {target} says nothing to those who cannot see it"
            assert (page.parent / target).is_file(), f"{page.name}: there is no {target}"
            named.add(Path(target).name)
    assert {*files} <= named
