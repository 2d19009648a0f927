"""What `loopline release PROJECT --history` prints: each move with its actor and reason, and what MLflow has."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli import loopline
from models.serving.registry_comparison import Projection
from models.serving.releases import Canary, ReleasePlan
from tasks.host import database
from tasks.host.workspace import Workspace
from tasks.operations.scaffold import make_project
from tasks.state import champion_moves, registered_models


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of a workspace with one project and three moves, of which MLflow has two."""
    monkeypatch.setenv("LOOPLINE_HOME", str(tmp_path))
    (tmp_path / "seen.csv").write_text("x,y\n" + "".join(f"{n},{n % 2}\n" for n in range(40)))
    make_project(Workspace.find(), "tiny", tmp_path / "seen.csv", "y")
    state = Workspace.find().state
    plan = ReleasePlan(canary=Canary(version="3", share=0.1), shadow="4")
    with database.writing(state) as connection:
        for number, fields in enumerate(
            (
                {"action": "promote", "before": None, "after": "1", "by": "tiny-1", "reason": "it beats the baseline"},
                {"action": "promote", "before": "1", "after": "2", "by": "MLflow", "reason": "moved in MLflow"},
                {"action": "canary", "before": "2", "after": "2", "by": "ada@host", "reason": "a try", "plan": plan},
            )
        ):
            champion_moves.record(connection, "tiny", number, **fields)
        registered_models.save(connection, "tiny", Projection(number=2, alias="2", trouble="MLflow is away"))
    return state


def test_each_move_is_a_line_with_actor_and_reason(state: Path) -> None:
    shown = CliRunner().invoke(loopline, ["release", "tiny", "--history"], catch_exceptions=False)
    assert shown.exit_code == 0
    head, *lines = shown.output.splitlines()
    assert head == "tiny: moves that wait for MLflow: 1: MLflow is away"
    assert [line.split()[0] for line in lines] == ["3", "2", "1"]
    assert "canary    2 + 3 (10%) + 4 (shadow)  ada@host: a try" in lines[0]
    assert lines[0].endswith("(waits for MLflow)")
    assert "promote   1 -> 2" in lines[1]
    assert lines[1].endswith("MLflow: moved in MLflow")
    assert "no champion -> 1" in lines[2]


def test_a_script_reads_the_same_as_json_and_no_row_changes(state: Path) -> None:
    before = champion_moves.moves_of(state, "tiny")
    shown = json.loads(CliRunner().invoke(loopline, ["release", "tiny", "--history", "--json"]).output)
    assert shown["mlflow"] == {"number": 2, "alias": "2", "looked": None, "trouble": "MLflow is away"}
    assert [move["is_carried"] for move in shown["moves"]] == [False, True, True]
    assert shown["moves"][0]["plan"]["canary"]["version"] == "3"
    assert champion_moves.moves_of(state, "tiny") == before


def test_a_project_without_a_move_names_what_makes_one(state: Path) -> None:
    with database.writing(state) as connection:
        connection.exec_driver_sql("delete from champion_moves")
    shown = CliRunner().invoke(loopline, ["release", "tiny", "--history"])
    assert shown.output == "tiny: no move so far: `loopline run tiny` makes the first\n"
    several = CliRunner().invoke(loopline, ["release", "tiny", "--history", "--end"])
    assert "expected one of them" in str(several.exception)


def test_status_and_plan_say_when_mlflow_was_looked_at_and_status_what_waits(state: Path) -> None:
    with database.writing(state) as connection:
        looked = Projection(number=2, alias="2", looked=time.time() - 14, trouble="MLflow is away")
        registered_models.save(connection, "tiny", looked)
    status = CliRunner().invoke(loopline, ["status", "tiny"], catch_exceptions=False).output
    assert "MLflow       does not follow: MLflow is away\n" in status
    assert re.search(r"MLflow       moves that wait for it: 1, the oldest (now|\d s ago)\n", status)
    assert "what to do: loopline docs how-to/when-it-fails#a-tool-is-behind\n" in status
    assert re.search(r"looked       MLflow was last looked at \d\d s ago", status)
    (project,) = json.loads(CliRunner().invoke(loopline, ["status", "tiny", "--json"]).stdout)["projects"]
    assert (project["mlflow"], project["moves_waiting"]) == ("MLflow is away", 1)
    assert project["mlflow_looked"] == looked.looked
    (lag,) = project["behind"]
    assert (lag["tool"], lag["rows"], lag["num_rows"]) == ("MLflow", "moves", 1)
    plan = CliRunner().invoke(loopline, ["plan", "tiny", "--json"], catch_exceptions=False)
    assert re.fullmatch(r"MLflow was last looked at \d\d s ago\n", plan.stderr)
    assert json.loads(plan.stdout)
