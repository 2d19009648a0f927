"""The recipes of CONTRIBUTING.md work: a test follows the text for a source and for a metric, in a copy of the tree."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"^    ```python\n    # (?P<place>.*)\n(?P<code>(?:    .*\n|\n)*?)    ```$", re.MULTILINE)
COPIED = ("models", "tests/unit/models/metrics", "tests/unit/models/sources")


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


def test_the_recipes_for_a_source_and_a_metric_work(root: Path, tmp_path: Path) -> None:
    for name in COPIED:
        shutil.copytree(root / name, tmp_path / name)  # with what Python has compiled: the times stay
    blocks = list(BLOCK.finditer((root / "CONTRIBUTING.md").read_text()))
    paths = [insert(tmp_path, block["place"], indented(block["code"])) for block in blocks]
    tests = [str(path) for path in paths if path.name.startswith("test_")]
    assert len(tests) == 2
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-c", os.devnull]
    arguments = [*options, "--rootdir", str(tmp_path), "--import-mode=importlib", "-k", "json_lines or msle", *tests]
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pytest; sys.exit(pytest.main({arguments!r}))"
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    ruff = [Path(sys.executable).with_name("ruff"), "format", "--check", "--config", root / "pyproject.toml", *paths]
    done = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"`make check` would refuse a recipe: {done.stdout}"
