"""A flow run of a dead process leads the reaper to its Prefect run; one of a living process does not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tasks.host import processes
from tasks.host.workspace import Workspace
from tasks.loop.runners import STALE_S, add_runner, dead_runners, remove_runners, running_flow, tag_of

ELSEWHERE = {"host": "macbook.office.lan", "pid": 4242, "started": "deadbeef/1"}


@pytest.fixture
def state(workspace: Workspace) -> Path:
    return workspace.state / "projects" / "tiny"


def noted(state: Path, monkeypatch: pytest.MonkeyPatch, process: dict[str, Any], flow_run: str | None = None) -> int:
    with monkeypatch.context() as other:
        other.setattr(processes, "identity", lambda: process)
        return add_runner(state, flow_run)


def test_a_living_process_is_not_dead_and_leaves_no_note(state: Path) -> None:
    with running_flow(state) as tag:
        assert tag == tag_of(processes.identity())
        assert dead_runners(state) == {}
    assert dead_runners(state) == {}


def test_a_dead_process_leads_to_its_run_or_to_the_tag_of_its_runs(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, run = {**processes.identity(), "started": "before"}, str(uuid4())
    by_tag, by_id = noted(state, monkeypatch, dead), noted(state, monkeypatch, dead, run)
    assert dead_runners(state) == {by_tag: tag_of(dead), by_id: UUID(run)}
    assert dead_runners(state.with_name("other")) == {}
    remove_runners(state, [by_tag])
    assert list(dead_runners(state)) == [by_id]


def test_a_process_of_another_host_counts_as_alive_for_an_hour(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number, now = noted(state, monkeypatch, ELSEWHERE), time.time()
    assert dead_runners(state) == {}
    monkeypatch.setattr(time, "time", lambda: now + STALE_S + 1)
    assert list(dead_runners(state)) == [number]
