"""All that have the page of a loop open share one view: a change is read and rendered once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tasks.dashboard import loops
from tasks.dashboard.loops import LoopView
from tasks.host import processes
from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord, find_loop, save_loop
from tasks.state.outbox import LOOP_RUN, Outbox


@pytest.fixture
def state(workspace: Workspace) -> Path:
    return workspace.state / "projects" / "tiny"


def view_of(workspace: Workspace, state: Path) -> LoopView:
    save_loop(state, LoopRecord("tiny-1", "running", "i", process=processes.identity(), began=time.time()))
    stored = find_loop(workspace.state, "tiny-1")
    assert stored is not None
    return LoopView(workspace, stored)


def test_pages_of_one_loop_share_each_change(
    workspace: Workspace, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, box = view_of(workspace, state), Outbox(state, "tiny-1")
    monkeypatch.setattr(loops, "FRESH_S", 0.0)
    first = view.part()
    assert view.part() is first, "nothing has changed"
    box.start_run(LOOP_RUN, "tiny-1", {})
    box.log("train", "run")
    second = view.part()
    assert (second.number, second.is_over, "train" in second.html) == (box.last_number(), False, True)
    monkeypatch.setattr(loops, "RENEW_S", 0.0)
    assert view.part() is not second, "times pass"
    save_loop(state, LoopRecord("tiny-1", "failed", "i", step="train"))
    assert view.part().is_over


def test_a_look_serves_all_pages_of_its_moment(
    workspace: Workspace, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = view_of(workspace, state)
    monkeypatch.setattr(loops, "FRESH_S", 60.0)
    first = view.part()
    Outbox(state, "tiny-1").log("train", "run")
    assert view.part() is first
