"""With MLflow or Prefect away, every command that needs only rows goes on, asks the tool once, and says what waits."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from flows.cli import loopline
from tasks.host.workspace import Workspace
from tasks.mlflow import registry_reader
from tasks.prefect import events, prefect_server
from tests.absent_tool import ANSWERS, away
from tests.registered import register_served
from tests.wide import wide_but

SPEC = "name: tiny\ndata:\n  source: data.csv\n  target: y\n"
TOOLS = {"MLflow": ("MLFLOW_TRACKING_URI", ""), "Prefect": ("PREFECT_API_URL", "/api")}
COMMANDS = [
    ["status"],
    ["plan", "tiny"],
    ["promote", "tiny", "2"],
    ["rollback", "tiny"],
    ["release", "tiny", "--history"],
    ["monitor", "tiny"],
    ["reap"],
    ["gc"],
    ["doctor"],
]
"""In an order in which each finds what it needs; the first moves need a look at MLflow, which fails."""


@pytest.mark.parametrize("how", wide_but(["refused", *ANSWERS], ["healthy"]))  # what a command could wait for longest
@pytest.mark.parametrize("tool", TOOLS)
def test_what_needs_only_rows_goes_on(tracked: Workspace, monkeypatch: pytest.MonkeyPatch, tool: str, how: str) -> None:
    project = tracked.root / "projects" / "tiny"
    project.mkdir(parents=True)
    (project / "project.yaml").write_text(SPEC)
    (project / "data.csv").write_text("x,y\n" + "".join(f"{row},{'ab'[row % 2]}\n" for row in range(40)))
    for number in ("1", "2"):
        register_served(tracked, "tiny", number)
    assert CliRunner().invoke(loopline, ["promote", "tiny", "1"], catch_exceptions=False).exit_code == 0
    monkeypatch.setattr(registry_reader, "ANSWER_S", 0.3)
    monkeypatch.setattr(prefect_server, "ANSWER_S", 0.3)
    monkeypatch.setattr(events, "TIMEOUT_S", 0.3)
    name, path = TOOLS[tool]
    asked: dict[str, list[bytes]] = {}
    with away(how) as (address, requests):
        monkeypatch.setenv(name, f"{address}{path}")
        for command in COMMANDS:
            requests.clear()
            done = CliRunner().invoke(loopline, command, catch_exceptions=False)
            asked[command[0]] = [*requests]
            assert done.exit_code == 0, (command, done.output)
    assert {command: questions for command, questions in asked.items() if len(questions) > 1} == {}
    status = CliRunner().invoke(loopline, ["status", "tiny"], catch_exceptions=False).output
    assert "moves that wait for it: 2" in status if tool == "MLflow" else "events that wait for it: " in status
