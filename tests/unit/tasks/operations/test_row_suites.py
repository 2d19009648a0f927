"""A row is checked by the suite of its sort."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli import loopline
from models.errors import UsageError
from tasks.operations.row_suites import SUITES, check_row

CODE = """\
def error(target, prediction):
    return float(abs(target - prediction).mean())


METRIC = {"value": error, "direction": "DIRECTION", "tasks": ["regression"]}
"""


@pytest.mark.parametrize(("direction", "code"), [("minimize", 0), ("maximize", 1), ("up", 1)])
def test_the_command_prints_each_claim_and_fails_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direction: str, code: int
) -> None:
    (tmp_path / "metric.py").write_text(CODE.replace("DIRECTION", direction))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(loopline, ["check-row", "./metric.py:METRIC"])
    assert result.exit_code == code, result.output
    assert sum(line.startswith("wrong ") for line in result.output.splitlines()) == code
    assert ("but direction is maximize: correct the direction" in result.output) == (direction == "maximize")
    assert ("direction: got 'up', expected one of maximize" in result.output) == (direction == "up")


def test_a_row_reads_from_the_folder_of_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "shop"
    folder.mkdir(parents=True)
    (folder / "rows.csv").write_text("a,b\n1,2\n3,4\n")
    (folder / "shop.py").write_text(
        "import pandas\n\n\ndef read(project):\n    return pandas.read_csv(project / 'rows.csv')\n\n\n"
        'SOURCE = {"read": read}\n'
    )
    found = [*check_row("./projects/shop/shop.py:SOURCE", tmp_path)]
    assert found
    assert [outcome for outcome in found if outcome.error] == []


def test_other_code_has_no_suite(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"got './a.py:error', expected ./file.py:{next(iter(SUITES))}"):
        check_row("./a.py:error", tmp_path)


def test_a_place_has_to_start_jobs_by_itself(workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_HOME", str(workspace.root))
    (workspace.root / "places.yaml").write_text('hand: {engine: torchrun, head: "h:1"}\n')
    for name in ("here", "hand"):
        with pytest.raises(UsageError, match=f"got '{name}', expected a place of places.yaml whose engine starts jobs"):
            check_row(name, Path())
