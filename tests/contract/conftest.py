"""The tree that the contracts hold for: what git tracks, or all files of a copy without git."""

from __future__ import annotations

import ast
import gc
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("flows", "tasks", "models")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def modules() -> list[Path]:
    """Every Python file of the three floors, relative to the root."""
    return sorted(path.relative_to(ROOT) for floor in CODE for path in (ROOT / floor).rglob("*.py"))


@pytest.fixture(scope="session")
def trees(modules: list[Path]) -> dict[Path, ast.Module]:
    """The syntax tree of each of these, parsed once for all tests."""
    gc.disable()  # it would walk through a million nodes again and again
    try:
        return {path: ast.parse((ROOT / path).read_text()) for path in modules}
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def trees_by_path(trees: dict[Path, ast.Module]) -> dict[str, ast.Module]:
    """The same by their paths as texts, as the scripts of `tests/structure` read them."""
    return {path.as_posix(): tree for path, tree in trees.items()}


@pytest.fixture(scope="session")
def tracked() -> list[Path]:
    """Every file that is part of the repository, absolute."""
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [path for name in done.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]
