"""No act under a lease is forgotten by the tests of time: each is a point of their table, or has its reason there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.time import points
from tests.time.points import POINTS, Point

ACT = re.compile(
    r"(?:\b|_)(?:(?:lease|loop)\.(?P<check>check)|(?:lease|loop)\.(?P<confirm>confirm)|(?<!_)(?P<leased>leased|leases\.tried))$"
)
"""How the product asks for a lease: in a transaction, before an act in another store, or for a block."""
NAMES = {"check", "confirm", "leased", "tried"}
"""The last name of each."""
OWN = "tasks/host/leases.py"


def last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def acts(path: str, node: ast.AST, within: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    """File, function and call of each act in a syntax tree; a method that is handed on is one too."""
    for child in ast.iter_child_nodes(node):
        named = within
        if isinstance(child, ast.ClassDef):
            named = (*within, child.name)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            named = (*within, child.name, "<locals>")
        elif last_name(child) in NAMES and (found := ACT.search(ast.unparse(child))):
            yield path, ".".join(within).removesuffix(".<locals>"), found.lastgroup or ""
        yield from acts(path, child, named)


def test_each_act_under_a_lease_is_a_point(trees: dict[Path, ast.Module]) -> None:
    product = {act for path, tree in trees.items() if path.as_posix() != OWN for act in acts(path.as_posix(), tree)}
    assert product == {(point.file, point.function, point.call) for point in POINTS if point.call}, (
        "tests/time/points.py lists them"
    )


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_each_point_has_its_test_or_its_reason(root: Path, point: Point) -> None:
    (name,) = [name for name, value in vars(points).items() if value is point]
    tests = "".join(path.read_text() for path in (root / "tests" / "time").glob("test_*.py"))
    is_tested = re.search(rf"\b{name}\b", tests) is not None
    assert is_tested != (len(point.reason) > 20), f"{name}: a test pauses there, or a reason says why not"
    assert bool(point.target) == is_tested
