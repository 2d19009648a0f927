"""`loopline gc`: a dry run by default, a table by kind, reasons, and the removal."""

from __future__ import annotations

import json

from click.testing import CliRunner

from flows.commands.upkeep.gc import command
from tasks.host.locks import held
from tasks.host.workspace import Workspace
from tasks.loop.history import LOOP_LOCK
from tests.conftest import MakeProject
from tests.past_loops import add_loop, crown


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert outcome.exit_code == 0
    return outcome.output


def test_it_shows_first_and_removes_when_told(workspace: Workspace, make_project: MakeProject) -> None:
    state = make_project().state("tiny")
    for number, days in enumerate((200, 150, 1), 1):
        add_loop(workspace, "tiny", number, days)
    crown(workspace, "tiny", "1")
    printed = run()
    assert "step folders" in printed
    assert "`loopline gc --delete`" in printed
    assert "it was champion" not in printed
    assert "step records: tiny train 5: tiny version 1: it is the champion" in run("tiny", "--why")
    assert len(list(state.glob("work/*/*"))) == 21
    with held(state / LOOP_LOCK, lambda: "held"):
        assert "tiny: nothing was removed: a loop of it runs" in run("--delete")
    removed = json.loads(run("--delete", "--json"))["removed"]
    assert removed["step folders"] == 14 * 5
    assert len(list(state.glob("work/*/*"))) == 7
