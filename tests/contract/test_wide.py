"""What repeats may wait for the night: each module, and each file of tests, keeps tests that every change runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.contract.test_mirror import ELSEWHERE, floors, mirror

LATER = ("pytest.mark.wide", "pytest.mark.soak")
"""Marks of tests that `make test` leaves out."""


def is_later(mark: ast.expr) -> bool:
    return ast.unparse(mark).startswith(LATER)


def kept(tree: ast.Module) -> list[str]:
    """The test functions of a file of which every change runs at least a case."""
    marks = [value for node in tree.body if isinstance(node, ast.Assign) for value in _marks_of_file(node)]
    if any(is_later(mark) for mark in marks):
        return []
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return [
        node.name for node in functions if not any(is_later(mark) or _has_no_case(mark) for mark in node.decorator_list)
    ]


def keeps_a_test(text: str) -> bool:
    """Whether a file has a test of every change; one that marks none for later is not parsed."""
    return "def test_" in text and (not re.search(r"\b(wide|soak)\b", text) or bool(kept(ast.parse(text))))


def _marks_of_file(node: ast.Assign) -> list[ast.expr]:
    if ast.unparse(node.targets[0]) != "pytestmark":
        return []
    return node.value.elts if isinstance(node.value, ast.List) else [node.value]


def _has_no_case(mark: ast.expr) -> bool:
    """Whether a table of cases, written out, marks each of them as one for later."""
    if not (isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.parametrize"):
        return False
    cases = mark.args[1]
    if not isinstance(cases, ast.List) or not cases.elts:
        return False
    return all(isinstance(case, ast.Call) and _is_later_case(case) for case in cases.elts)


def _is_later_case(case: ast.Call) -> bool:
    marks = [word.value for word in case.keywords if word.arg == "marks"]
    return ast.unparse(case.func) == "wide" or any(is_later(mark) for mark in marks)


def files_of(root: Path, module: Path) -> list[Path]:
    """The files that test a module."""
    if reason := ELSEWHERE.get(module.as_posix()):
        named = root / reason.split(":")[0]
        return [named] if named.is_file() else sorted(named.rglob("test_*.py"))
    return [root / mirror(module)]


def test_each_module_has_tests_in_the_suite_of_every_change(root: Path, modules: list[Path]) -> None:
    bare = [
        module.as_posix()
        for module in floors(modules)
        if not any(keeps_a_test(path.read_text()) for path in files_of(root, module))
    ]
    assert bare == [], "their tests are all wide or for a soak"


@pytest.mark.parametrize("folder", ["unit", "rules"])
def test_each_file_that_marks_tests_as_wide_keeps_one(root: Path, folder: str) -> None:
    for path in sorted((root / "tests" / folder).rglob("test_*.py")):
        text = path.read_text()
        assert keeps_a_test(text), f"{path}: nothing is left for `make test`"


def test_what_a_file_keeps_is_told() -> None:
    tree = ast.parse("""
@pytest.mark.wide
def test_a(): ...

@pytest.mark.parametrize("x", [wide(1), pytest.param(2, marks=pytest.mark.soak)])
def test_b(x): ...

@pytest.mark.parametrize("x", [1, wide(2)])
def test_c(x): ...
""")
    assert kept(tree) == ["test_c"]
    assert kept(ast.parse("pytestmark = [pytest.mark.e2e, pytest.mark.wide]\ndef test_d(): ...")) == []
