"""The recipe for a kind of column works: a folder and a row, from the first spec to what is served and monitored."""

from pathlib import Path

import pytest

from tests.recipes import ROOT, check_form, checked_types, copied, follow, run_tests

FOLDERS = ("models", "tasks")
ROW = "models/inputs/records.py"


@pytest.mark.wide
def test_tags_in_one_text_are_guessed_trained_exported_served_monitored_and_on_the_card(tmp_path: Path) -> None:
    helpers = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("*.py")]
    (tmp_path / "tests").mkdir()
    copied([*FOLDERS, *helpers], tmp_path)
    paths = follow("Add a kind of column", tmp_path)
    tests = [path for path in paths if path.name.startswith("test_")]
    code = {path.relative_to(tmp_path).as_posix() for path in paths} - {
        path.relative_to(tmp_path).as_posix() for path in tests
    }
    assert code == {ROW, *(f"models/inputs/tags/{name}.py" for name in ("__init__", "record", "rows", "nodes"))}
    assert "10 passed" in run_tests(tmp_path, [*tests, tmp_path / "tests" / "tagged_loop.py"])
    check_form(tmp_path, paths)
    assert "Success" in (printed := checked_types(tmp_path, ["models/inputs"])), printed
