"""The recipes of CONTRIBUTING.md work: a test follows the text for a source and for a metric, in a copy of the tree."""

from pathlib import Path

from tests.recipes import check_form, copied, follow, run_tests

COPIED = ("models", "tests/unit/models/metrics", "tests/unit/models/sources")


def test_the_recipes_for_a_source_and_a_metric_work(tmp_path: Path) -> None:
    copied(COPIED, tmp_path)
    paths = [path for recipe in ("Add a source", "Add a metric") for path in follow(recipe, tmp_path)]
    tests = [path for path in paths if path.name.startswith("test_")]
    assert len(tests) == 2
    assert "3 passed" in run_tests(tmp_path, tests, "-k", "json_lines or msle")
    check_form(tmp_path, paths)
