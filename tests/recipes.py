"""The recipes of CONTRIBUTING.md, followed from their own text in a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^    ```(?:python|yaml)\n    # (?P<place>.*)\n(?P<code>(?:    .*\n|\n)*?)    ```$", re.MULTILINE)


def recipe(name: str) -> str:
    """The text of a recipe, up to the next one."""
    (text,) = re.findall(
        rf"^### {name}\n(.*?)(?=^###? )", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return str(text)


def follow(name: str, folder: Path) -> list[Path]:
    """Put each block of a recipe where its first line says, below `folder`; return the files."""
    return [insert(folder, block["place"], indented(block["code"])) for block in BLOCK.finditer(recipe(name))]


def copied(names: Iterable[str], folder: Path) -> None:
    """Copy folders and files of the tree, with what Python has compiled: the times stay."""
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy2(ROOT / name, folder / name)


def indented(code: str) -> str:
    """The lines of a block without the indent of its place in the list; those of the code itself stay."""
    return "".join(line[4:] or "\n" for line in code.splitlines(keepends=True))


def insert(folder: Path, place: str, code: str) -> Path:
    """Put a block where its first line says: a new file, below or above a line, or at the end.

    A block that is there stays: who tries a recipe in a clone runs this test too.
    """
    name, _, where = place.partition(", ")
    path = folder / name
    if path.exists() and code in path.read_text():
        return path
    if not where:
        assert not path.exists(), f"{name} is there already: choose another example"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    elif where == "at the end":
        path.write_text(path.read_text() + code)
    else:
        side, text = where.split(" the line: ")
        lines = path.read_text().splitlines(keepends=True)
        (index,) = [number for number, line in enumerate(lines) if line.strip().startswith(text)]
        lines.insert(index + (side == "below"), code)
        path.write_text("".join(lines))
    return path


def run_tests(folder: Path, paths: Iterable[Path], *further: str) -> str:
    """Run tests of the copied tree in a process of their own; return what pytest printed."""
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-c", os.devnull]
    arguments = [*options, "--rootdir", str(folder), "--import-mode=importlib", *further, *map(str, paths)]
    program = f"import sys; sys.path.insert(0, {str(folder)!r}); import pytest; sys.exit(pytest.main({arguments!r}))"
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_form(folder: Path, paths: Iterable[Path]) -> None:
    """Hold the files of a recipe to the linter's rules and its format."""
    for check in (["check", "--no-cache"], ["format", "--check"]):
        ruff = [Path(sys.executable).with_name("ruff"), *check, "--config", ROOT / "pyproject.toml", *paths]
        done = subprocess.run(ruff, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"`make check` would refuse a recipe: {done.stdout}"


def checked_types(folder: Path, names: Iterable[str]) -> str:
    """What the type checker prints of some modules alone: with all that they import it would take minutes."""
    options = ["--config-file", os.devnull, "--follow-imports=skip", "--ignore-missing-imports", "--no-site-packages"]
    command = [sys.executable, "-m", "mypy", *options, "--no-incremental", *names]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout + done.stderr
