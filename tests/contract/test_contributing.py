"""The recipes of CONTRIBUTING.md work: tests follow their text, in a copy of the tree."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"^    ```python\n    # (?P<place>.*)\n(?P<code>(?:    .*\n|\n)*?)    ```$", re.MULTILINE)
COPIED = ("models", "tests/unit/models/metrics", "tests/unit/models/sources")
TASK_TABLE = re.compile(r"^\w+: PerTask\[", re.MULTILINE)
TASK_ROWS = "models/kinds/task.py"


def recipe(root: Path, name: str) -> str:
    """The text of a recipe, up to the next one."""
    (text,) = re.findall(
        rf"^### {name}\n(.*?)(?=^###? )", (root / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return str(text)


def follow(folder: Path, text: str) -> list[Path]:
    """Put the blocks of a recipe into a copy of the tree, and return their files."""
    return [insert(folder, block["place"], indented(block["code"])) for block in BLOCK.finditer(text)]


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
    paths = follow(tmp_path, recipe(root, "Add a source") + recipe(root, "Add a metric"))
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


def test_the_type_checker_names_the_tables_that_the_recipe_for_a_task_lists(root: Path, tmp_path: Path) -> None:
    """Of the modules alone, without what they import: the whole tree would take the type checker minutes."""
    tables = [
        path.relative_to(root).as_posix()
        for room in ("models", "tasks", "flows")
        for path in (root / room).rglob("*.py")
        if TASK_TABLE.search(path.read_text())
    ]
    for name in tables:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        for package in (tmp_path / name).relative_to(tmp_path).parents:
            if package.name:
                (tmp_path / package / "__init__.py").touch()
        shutil.copyfile(root / name, tmp_path / name)
    text = recipe(root, "Add a task")
    follow(tmp_path, text)
    options = ["--config-file", os.devnull, "--follow-imports=skip", "--ignore-missing-imports", "--no-site-packages"]
    command = [sys.executable, "-m", "mypy", *options, "--no-incremental", *tables]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert f"{TASK_ROWS}:" not in done.stdout, done.stdout
    named = set(re.findall(r'^(\S+?):\d+: error: Missing key "count"', done.stdout, re.MULTILINE))
    assert named == {*tables} - {TASK_ROWS}, done.stdout + done.stderr
    table = text.partition("| to do |")[2].partition("\n\n")[0]
    assert {*re.findall(r"`(\S+?\.py)`", table)} == named, "the recipe lists other files than the type checker names"
