"""The past as the policy sees it, from the project's own files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from models.project_spec.reader import read_spec
from models.triggers.signal import Action, Decision, PastLoop, Signal
from tasks.host import processes
from tasks.host.locks import tried
from tasks.host.workspace import Project
from tasks.loop import decisions
from tasks.loop.history import (
    LOOP_LOCK,
    LoopRecord,
    last_loop,
    newest_loops,
    past,
    read_loops,
    record_loop,
    running,
    save_loop,
)
from tests.conftest import MakeProject

NOW = 1e9


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project("tiny", "retrain: {ask_timeout_s: 100}\n")


def a_loop(name: str, ended: float = NOW, **more: Any) -> PastLoop:
    return PastLoop.model_validate({"loop_id": name, "began": ended - 9, "ended": ended, "outcome": "kept", **more})


def decided(project: Project, name: str, action: Action, at: float = NOW, until: float | None = None) -> None:
    signal = Signal(id=name, kind="decay", at=at, reason="lower")
    made = Decision(signal=signal, at=at, action=action, reasons=["why"], until=until)
    decisions.record(project.state("tiny"), made)


def test_nothing_was_is_an_empty_past(project: Project) -> None:
    found = past(project, read_spec(project.spec_path))
    assert (found.loops, found.running, found.open_approval, found.signals) == ([], None, None, frozenset())


def test_a_loop_told_twice_counts_as_it_was_told_last(project: Project) -> None:
    state = project.state("tiny")
    record_loop(state, a_loop("l1", outcome="failed"))
    record_loop(state, a_loop("l2"))
    record_loop(state, a_loop("l1", outcome="promoted"))
    assert [(loop.loop_id, loop.outcome) for loop in read_loops(state)] == [("l2", "kept"), ("l1", "promoted")]


def test_labels_are_new_until_a_loop_has_trained_with_them(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that failed, or whose data was rejected, has not."""
    project = make_project("tiny", "retrain: {min_new_labels: 1}\n")
    asked: list[float] = []
    monkeypatch.setattr("tasks.loop.history.new_labels", lambda _, since: asked.append(since) or 0)
    spec, state = read_spec(project.spec_path), project.state("tiny")
    past(project, spec)
    for ended, outcome in ((19, "kept"), (29, "failed"), (39, "rejected"), (49, "promoted")):
        record_loop(state, a_loop(outcome, float(ended), outcome=outcome))
        past(project, spec)
    assert asked == [0.0, 10.0, 10.0, 10.0, 40.0]


def test_a_signal_told_to_wait_until_a_known_time_is_not_decided_for_good(project: Project) -> None:
    decided(project, "later", "wait", until=NOW + 60)
    decided(project, "never", "wait")
    decided(project, "now", "retrain")
    decided(project, "again", "wait", until=NOW + 60)
    decided(project, "again", "retrain")
    assert past(project, read_spec(project.spec_path), NOW).signals == {"never", "now", "again"}


def test_a_question_stands_until_it_is_answered_or_too_old(project: Project) -> None:
    spec = read_spec(project.spec_path)
    decided(project, "s1", "ask")
    assert past(project, spec, NOW + 99).open_approval == "s1"
    assert past(project, spec, NOW + 101).open_approval is None
    decided(project, "s1", "wait")
    assert past(project, spec, NOW + 99).open_approval is None


def test_only_a_living_process_runs_a_loop(project: Project) -> None:
    state = project.state("tiny")
    assert running(state) is None
    save_loop(state, LoopRecord("l1", "running", process=processes.identity()))
    assert running(state) == "l1"
    save_loop(state, LoopRecord("l1", "running", process={**processes.identity(), "started": "before"}))
    assert running(state) is None


def test_a_loop_of_another_host_runs_while_it_holds_the_lock(project: Project) -> None:
    """A host that was renamed, or a container made anew, finds the book of a loop that died under the earlier name."""
    state = project.state("tiny")
    elsewhere = {"host": "macbook.office.lan", "pid": 4242, "started": "deadbeef/1"}
    state.mkdir(parents=True)
    save_loop(state, LoopRecord("l1", "running", process=elsewhere))
    assert running(state) is None
    with tried(state / LOOP_LOCK):
        assert running(state) == "l1"


def test_loops_come_back_in_the_order_of_their_ends_though_a_clock_went_back(project: Project) -> None:
    state = project.state("tiny")
    for number in range(5):
        record_loop(state, a_loop(f"l{number}", NOW - number))
    record_loop(project.state("other"), a_loop("another project's"))
    assert [loop.loop_id for loop in past(project, read_spec(project.spec_path)).loops] == [f"l{n}" for n in range(5)]
    last = newest_loops(state.parents[1], ["tiny", "other", "none"], 2)
    assert {name: [loop.loop_id for loop in loops] for name, loops in last.items()} == {
        "tiny": ["l4", "l3"],
        "other": ["another project's"],
    }


def test_the_last_loop_is_the_one_whose_state_was_saved_last(project: Project) -> None:
    state = project.state("tiny")
    first, second = LoopRecord("l1", "killed", began=NOW), LoopRecord("l2", "finished", began=NOW - 9)
    for loop in (first, second):
        save_loop(state, loop)
        record_loop(state, a_loop(loop.loop_id))
    assert last_loop(state) == second
    save_loop(state, replace(first, state="running"))
    assert last_loop(state) == replace(first, state="running")
    assert [loop.loop_id for loop in read_loops(state)] == ["l1", "l2"], "it has not ended again"
