"""How a loop ended, by its records and by what was raised, is in its history and told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prefect.exceptions import TerminationSignal

from models.errors import DataError, GateRefused, LeaseLostError, StoreError, TrainingError
from models.pipeline.records import StepRecord
from tasks.host.leases import leased
from tasks.host.workspace import Project
from tasks.loop.history import LoopRecord, last_loop, lease_of, read_loops, save_loop
from tasks.loop.lifecycle import open_loop, open_stage
from tasks.loop.loop import Loop
from tasks.loop.outcome import conclude, conclude_killed, outcome_of
from tasks.prefect import flow_runs
from tasks.state.outbox import LOOP_RUN, Outbox
from tests.conftest import MakeProject
from tests.stored_events import stored_events

ENDED = LoopRecord("tiny-1", "failed", began=1.0)


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project("tiny")


@pytest.fixture
def loop(project: Project) -> Loop:
    with open_stage(project) as made:
        return made


def did(loop: Loop, step: str, **result: Any) -> None:
    loop.done[step] = StepRecord(step=step, key="k", parts={}, digest="d", result=result, loop_id=loop.id, finished=1.0)
    loop.ran.append(step)


def test_the_outcome_is_the_verdicts(loop: Loop) -> None:
    assert outcome_of(loop.ran, loop.done, None) == "unchanged"
    did(loop, "promote", decision="promote")
    assert outcome_of(loop.ran, loop.done, None) == "promoted"
    did(loop, "promote", decision="keep")
    assert outcome_of(loop.ran, loop.done, None) == "kept"


def test_a_gate_that_refuses_data_rejects_and_one_that_refuses_a_model_keeps(loop: Loop) -> None:
    assert outcome_of(loop.ran, loop.done, GateRefused("age is negative")) == "rejected"
    assert outcome_of(loop.ran, loop.done, DataError("no column y")) == "rejected"
    assert outcome_of(loop.ran, loop.done, TrainingError("NaN")) == "failed"
    assert outcome_of(loop.ran, loop.done, KeyboardInterrupt()) == "cancelled"
    did(loop, "judge")
    assert outcome_of(loop.ran, loop.done, GateRefused("somebody moved the champion")) == "kept"


def test_only_what_this_loop_spent_counts(loop: Loop) -> None:
    costs = {"device": "cpu", "device_seconds": 4.0}
    did(loop, "search", costs=costs)
    did(loop, "train", costs=costs)
    loop.ran.remove("search")
    loop.lost_device_s = 1.5
    conclude(loop, ENDED, TrainingError("NaN"))
    (told,) = read_loops(loop.state)
    assert (told.loop_id, told.outcome, told.device_seconds) == (loop.id, "failed", 5.5)


def test_the_end_waits_as_an_event_with_its_outcome(loop: Loop) -> None:
    conclude(loop, ENDED, GateRefused("age is negative"))
    (event,) = stored_events(loop.workspace)
    assert event["labels"] == {"loopline.outcome": "rejected", "loopline.trigger": "dvc"}
    assert "age is negative" in event["text"]


def test_a_loop_of_any_end_is_on_record_with_what_asked_for_it(project: Project) -> None:
    with pytest.raises(StoreError), open_loop(project, trigger="decay"):
        raise StoreError("the disk is full")
    (told,) = read_loops(project.state("tiny"))
    assert (told.outcome, told.trigger) == ("failed", "decay")
    assert told.began <= told.ended


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DataError("data.target: no column 'y':\n did you mean 'z'?"), "data.target: no column 'y': did you mean 'z'?"),
        (TrainingError("NaN"), "NaN"),
        (KeyError("x"), "KeyError: 'x'"),
        (KeyboardInterrupt(), "a person pressed Ctrl-C"),
        (TerminationSignal(signal=15), "its process was ended by SIGTERM, as at a shutdown: a run continues it"),
    ],
)
def test_why_a_loop_failed_is_on_record(loop: Loop, error: BaseException, reason: str) -> None:
    conclude(loop, ENDED, error)
    assert [told.reason for told in read_loops(loop.state)] == [reason]
    did(loop, "promote", decision="keep")
    conclude(loop, ENDED, None)
    assert [told.reason for told in read_loops(loop.state)] == [""]


def test_the_end_of_a_loop_that_another_process_has_taken_over_leaves_nothing(loop: Loop) -> None:
    """Its state, its line in the history and its event: a paused process comes back when all three are another's."""
    went_on = LoopRecord("tiny-1", "running", process={"host": "b", "pid": 9, "started": 2.0})
    state = loop.workspace.state
    with leased(state, lease_of(loop.state)) as loop.lease, leased(state, lease_of(loop.state)) as other:
        save_loop(loop.state, went_on, other)
        with pytest.raises(LeaseLostError):
            conclude(loop, ENDED, TrainingError("NaN"))
        with pytest.raises(LeaseLostError):
            conclude_killed(loop.workspace, loop.state, went_on, loop.lease)
    assert last_loop(loop.state) == went_on
    assert (read_loops(loop.state), stored_events(loop.workspace)) == ([], [])


def test_a_process_that_is_killed_when_its_end_is_recorded_leaves_all_of_it(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.loop.outcome.deliver", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        conclude(loop, ENDED, TrainingError("NaN"))
    assert last_loop(loop.state) == ENDED
    assert (len(read_loops(loop.state)), len(stored_events(loop.workspace))) == (1, 1)


def test_one_that_was_killed_is_told_as_failed(loop: Loop) -> None:
    conclude_killed(loop.workspace, loop.state, LoopRecord("tiny-1", "running", began=5.0, trigger="drift"))
    (told,) = read_loops(loop.state)
    assert (told.loop_id, told.began, told.outcome, told.trigger) == ("tiny-1", 5.0, "failed", "drift")
    assert told.reason == "it was killed"


def test_a_killed_loop_is_told_once_however_many_find_it_and_again_if_it_is_killed_again(loop: Loop) -> None:
    killed = LoopRecord("tiny-1", "running", began=5.0, process={"host": "a", "pid": 7, "started": 1.0})
    for found in (killed, killed, replace(killed, process={"host": "b", "pid": 9, "started": 2.0})):
        conclude_killed(loop.workspace, loop.state, found)
    texts = [event["text"] for event in stored_events(loop.workspace)]
    assert texts == ["loop tiny-1 ended: it was killed; there is no champion yet"] * 2
    assert len(read_loops(loop.state)) == 1


def test_a_signal_cancels_a_loop_only_if_a_person_has_cancelled_its_run(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcome_of(loop.ran, loop.done, TerminationSignal(signal=15)) == "failed"
    monkeypatch.setenv("PREFECT_API_URL", "http://there/api")
    monkeypatch.setenv(flow_runs.FLOW_RUN, "r1")
    monkeypatch.setattr(flow_runs, "ask", lambda *_: {"state_type": "CANCELLING"})
    conclude(loop, ENDED, TerminationSignal(signal=15))
    (past,) = read_loops(loop.state)
    assert (past.outcome, past.reason) == ("cancelled", "a person cancelled its run in Prefect")
    (event,) = stored_events(loop.workspace)
    assert event["text"].endswith("it was cancelled; there is no champion yet: a person cancelled its run in Prefect")


def epoch(outbox: Outbox, run: str, number: int, seconds: float, prefix: str = "") -> None:
    outbox.metrics(run, {f"{prefix}device_s": seconds, "val_loss": 1.0}, number)


def test_a_killed_loop_costs_what_it_reported_until_it_died(loop: Loop) -> None:
    outbox = Outbox(loop.state, "tiny-1")
    outbox.start_run(LOOP_RUN, "tiny-1", {})
    for number, seconds in ((1, 2.0), (2, 3.0)):
        epoch(outbox, "trial-0", number, seconds)
    epoch(outbox, LOOP_RUN, 1, 2.0)  # taken over from the trial
    epoch(outbox, LOOP_RUN, 1, 2.5, "mlp.")  # another member of the ensemble
    last = max(line.get("at_ms", 0) for line in outbox.lines().values()) / 1000
    died = conclude_killed(loop.workspace, loop.state, LoopRecord("tiny-1", "running", began=5.0))
    (past,) = read_loops(loop.state)
    assert (past.device_seconds, past.ended, died) == (7.5, last, last)
    assert loop.lease is not None
    lease = replace(loop.lease, renewed=last + 20)
    conclude_killed(loop.workspace, loop.state, LoopRecord("tiny-1", "running", began=5.0), lease)
    assert read_loops(loop.state)[0].ended == last + 20, "the lease was renewed after the last report"


def test_a_loop_that_goes_on_after_a_kill_costs_both_attempts(loop: Loop) -> None:
    loop.outbox = Outbox(loop.state, loop.id)
    epoch(loop.outbox, LOOP_RUN, 1, 30.0)
    conclude(loop, ENDED, None)  # its training was done before the kill
    assert [past.device_seconds for past in read_loops(loop.state)] == [30.0]
