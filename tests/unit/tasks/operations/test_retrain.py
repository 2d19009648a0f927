"""A signal is weighed once a run; a person's answer is kept; the loop's overrides come from policy and champion."""

from __future__ import annotations

import time
from typing import Any

import pytest

from models.serving.registry import RegisteredVersion
from models.triggers.signal import Signal
from tasks.host import processes
from tasks.host.workspace import Project
from tasks.loop import decisions
from tasks.loop.history import LoopRecord, save_loop
from tasks.mlflow import registry_reader
from tasks.operations import retrain
from tasks.operations.overview import overview
from tasks.operations.retrain import answered, loop_overrides, note_answer, open_question, run_signal, unanswered, weigh
from tests.conftest import MakeProject
from tests.stored_events import stored_events


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project("tiny", "retrain: {on: [decay], ask: true, search: reuse}\n")


def a_signal(name: str = "s1", kind: Any = "decay") -> Signal:
    return Signal(id=name, kind=kind, at=time.time(), reason="lower")


def test_a_run_that_is_run_again_decides_once(project: Project) -> None:
    first = weigh(project, a_signal(), "run-1")
    assert (first.action, first.flow_run) == ("ask", "run-1")
    assert weigh(project, a_signal(), "run-1") == first
    assert len(decisions.read(project.state("tiny"))) == 1


def test_a_signal_that_is_asked_again_is_decided_once(project: Project) -> None:
    question = weigh(project, a_signal(), "run-1")
    again = weigh(project, a_signal(), "run-2")
    assert again.action == "wait"
    assert "signal s1 was decided before: it counts once" in again.reasons
    assert decisions.read(project.state("tiny")) == [question]
    assert open_question(project) == question, "it still waits for its answer"


def test_an_approval_names_the_loop_and_a_refusal_its_author(project: Project) -> None:
    question = weigh(project, a_signal(), "run-1")
    assert open_question(project) == question
    yes = answered(project, question, True, "Ada", "go")
    assert (yes.action, yes.by) == ("retrain", "Ada")
    assert yes.reasons[0] == "approved by Ada: go"
    assert str(yes.loop_id).startswith("tiny-2")
    assert answered(project, question, False, "Bob") == yes, "the answer of a run begun again is the one it had"
    no = answered(project, weigh(project, a_signal("s2"), "run-2"), False, "")
    assert (no.action, no.reasons[0]) == ("wait", "refused by a person")
    assert open_question(project) is None


def test_an_approval_waits_for_no_loop_that_runs(project: Project) -> None:
    question = weigh(project, a_signal(), "run-1")
    save_loop(project.state("tiny"), LoopRecord("tiny-9", "running", process=processes.identity()))
    answer = answered(project, question, True, "Ada")
    assert answer.action == "wait"
    assert "loop tiny-9 runs now: one at a time" in answer.reasons


def test_a_question_that_nobody_will_answer_keeps_nobody_waiting(project: Project) -> None:
    unanswered(project, weigh(project, a_signal(), "run-1"), "its run was deleted")
    assert weigh(project, a_signal("s2"), "run-2").action == "ask"


def test_rows_that_grew_at_the_source_are_new_labels(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.spec_path.write_text(project.spec_path.read_text().replace("ask: true", "min_new_labels: 9"))
    assert weigh(project, a_signal(), "run-1").reasons == ["0 new labelled rows, expected 9"]
    monkeypatch.setattr(retrain, "_new_rows", lambda *_: 9)
    assert weigh(project, a_signal("s2"), "run-2").action == "retrain"


def test_every_decision_is_told(project: Project) -> None:
    weigh(project, a_signal(), "run-1")
    (event,) = stored_events(project.workspace)
    assert event["labels"] == {"loopline.action": "ask", "loopline.trigger": "decay"}
    assert event["payload"]["decision"]["flow_run"] == "run-1"


def test_the_champions_own_settings_are_used_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loop_overrides(project) == ([], [])
    champion = RegisteredVersion(number="3", tags={"loopline.params": '{"train.lr": 0.1}'})
    monkeypatch.setattr(registry_reader, "named", lambda *_: champion)
    assert loop_overrides(project)[0] == ["search.trials=0", 'search.settings={"train.lr": 0.1}']


def test_only_a_function_is_asked_anew(project: Project) -> None:
    project.spec_path.write_text(project.spec_path.read_text().replace("data.csv", "./source.py:load"))
    assert loop_overrides(project)[1] == ["ingest"]


def test_a_run_without_a_signal_says_who_began_it() -> None:
    assert run_signal("person", 5.0, "run-1").reason == "a person asked"
    made = run_signal("schedule", 5.0, "run-1")
    assert (made.id, made.kind, made.at) == ("schedule-run-1", "schedule", 5.0)
    assert run_signal("person", 5.0, "run-1", "new airline").reason == "new airline"


def test_a_question_that_was_answered_is_not_asked_again_until_its_run_goes_on(project: Project) -> None:
    question = weigh(project, a_signal(), "run-1")
    state = project.state("tiny")

    def waiting() -> object:
        return overview(project.workspace, [project]).projects[0].waiting

    assert waiting() is not None
    note_answer(project.workspace, "tiny", "run-1", True, "Ada", "go")
    assert waiting() is None
    noted = weigh(project, a_signal(), "run-1")
    assert (noted.action, noted.by) == ("ask", "Ada"), "the run still reads the answer itself"
    answer = answered(project, noted, True, "Ada", "go")
    assert (answer.action, answer.reasons) == ("retrain", ["approved by Ada: go", *question.reasons])
    note_answer(project.workspace, "tiny", "run-1", False, "Bob")
    assert decisions.read(state)[-1] == answer, "what the run has decided stays"
