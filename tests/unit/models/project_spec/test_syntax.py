"""Modules are read as Python would import them, and nothing is imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from models.project_spec.syntax import REQUIRED, UNKNOWN, definition, module_file, names_in, parameters


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "read_only"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit\ntry:\n    from .deep import Shown as Seen\nfinally: ...\n")
    (folder / "deep" / "__init__.py").write_text("from ._core import Shown\n")
    (folder / "deep" / "_core.py").write_text("import math\nclass Shown: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_a_name_is_followed_to_its_definition(package: Path) -> None:
    where = definition("read_only", "Seen")
    assert where is not None
    assert (where.module, where.path) == ("read_only.deep._core", package / "deep" / "_core.py")
    assert isinstance(where.node, ast.ClassDef)
    assert definition("read_only", "Shown") is None
    assert definition("read_only.deep", "Shown") == where
    assert names_in("read_only") == ["Seen", "deep"]


def test_the_file_of_a_module_is_found_without_its_parents(package: Path) -> None:
    assert module_file("read_only.deep._core") == package / "deep" / "_core.py"
    assert module_file("read_only.none") is None
    assert module_file("no_such_package.deep") is None


def test_imports_in_a_circle_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "first_half.py").write_text("from second_half import Thing\n")
    (tmp_path / "second_half.py").write_text("from first_half import Thing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert definition("first_half", "Thing") is None


def test_parameters_have_their_defaults() -> None:
    function = ast.parse("def f(self, a, b=1, *more, c, d=LIMIT, e=None): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert parameters(function) == {"a": REQUIRED, "b": 1, "c": REQUIRED, "d": UNKNOWN, "e": None}
