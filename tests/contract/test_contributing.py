"""The recipes of CONTRIBUTING.md work: tests follow their text, in a copy of the tree."""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli import loopline
from models.training.spec_check import read_checked
from tests.recipes import check_form, checked_types, copied, follow, recipe, run_tests

COPIED = ("models", "tests/unit/models/metrics", "tests/unit/models/sources")
MOST_FILES = 4
"""Of a recipe for a row of a project."""
TASK_TABLE = re.compile(r"^\w+: PerTask\[", re.MULTILINE)
TASK_ROWS = "models/kinds/task.py"


def test_the_recipes_for_a_source_and_a_metric_work(tmp_path: Path) -> None:
    copied(COPIED, tmp_path)
    paths = [path for name in ("Add a source", "Add a metric") for path in follow(name, tmp_path)]
    tests = [path for path in paths if path.name.startswith("test_")]
    assert len(tests) == 2
    assert "3 passed" in run_tests(tmp_path, tests, "-k", "orc or msle")
    check_form(tmp_path, paths)


def test_the_recipe_for_a_metric_of_a_project_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"{distance},{distance / 3}\n" for distance in range(300))
    project = followed_in_project("Bring a metric", tmp_path / "projects" / "trips", f"km,minutes\n{rows}")
    assert read_checked(project / "project.yaml").goal.metric == "./costs.py:METRIC"
    check_row_of(project, "costs", "METRIC", monkeypatch)


def test_the_recipe_for_a_boosted_family_of_a_project_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xgboost", reason="the extra estimators")
    rows = "".join(f"{number},{'yes' if number % 3 else 'no'}\n" for number in range(300))
    project = followed_in_project("Bring a boosted family", tmp_path / "projects" / "leavers", f"months,left\n{rows}")
    assert read_checked(project / "project.yaml").model.net == "./boosted.py:FAMILY"
    check_row_of(project, "boosted", "FAMILY", monkeypatch)


def followed_in_project(name: str, project: Path, table: str) -> Path:
    """Follow a recipe whose files all lie in a project's folder, and write the project's table there."""
    paths = follow(name, project.parents[1])
    assert len(paths) <= MOST_FILES
    assert {path.parent for path in paths} == {project}
    (project / f"{project.name}.csv").write_text(table)
    return project


def check_row_of(project: Path, module: str, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the recipe's own test and the suite of its row, from the project's folder."""
    assert "1 passed" in run_tests(project, [project / f"test_{module}.py"])
    monkeypatch.chdir(project)
    checked = CliRunner().invoke(loopline, ["check-row", f"./{module}.py:{row}"])
    assert checked.exit_code == 0, checked.output


def test_the_type_checker_names_the_tables_that_the_recipe_for_a_task_lists(root: Path, tmp_path: Path) -> None:
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
    follow("Add a task", tmp_path)
    printed = checked_types(tmp_path, tables)
    assert f"{TASK_ROWS}:" not in printed, printed
    named = set(re.findall(r'^(\S+?):\d+: error: Missing key "count"', printed, re.MULTILINE))
    assert named == {*tables} - {TASK_ROWS}, printed
    step = recipe("Add a task").partition("\n3. ")[2].partition("\n4. ")[0]
    assert {*re.findall(r"`(\S+?\.py)`", step)} == named, "the recipe lists other files than the type checker names"
