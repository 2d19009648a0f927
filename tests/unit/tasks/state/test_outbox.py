"""The outbox loses nothing that was written."""

import threading
from pathlib import Path

import pytest

from models.errors import LeaseLostError
from tasks.host.leases import leased
from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord, save_loop
from tasks.state.outbox import (
    LOOP_RUN,
    Delivered,
    Outbox,
    delivered,
    set_delivered,
    undelivered,
    waiting_loops,
)


@pytest.fixture
def state(workspace: Workspace) -> Path:
    return workspace.state / "projects" / "tiny"


@pytest.fixture
def box(state: Path) -> Outbox:
    return Outbox(state, "tiny-1")


def fill(box: Outbox) -> Outbox:
    box.start_run("loop", "tiny-1", {"a": "b"})
    box.params("loop", {"lr": 0.1})
    box.metrics("loop", {"loss": 1.0}, 3)
    return box


def test_the_points_of_a_run_are_its_last_values(box: Outbox) -> None:
    fill(box).metrics("loop", {"loss": 0.5, "accuracy": float("nan")}, 4)
    box.metrics("loop", {"loss": 0.7}, 3)
    box.metrics("trial-0", {"loss": 9.0}, 3)
    assert box.points("loop") == {("loss", 3): 0.7, ("loss", 4): 0.5}


def test_lines_come_back_in_order_and_say_when(box: Outbox) -> None:
    lines = list(fill(box).lines().values())
    assert [line["op"] for line in lines] == ["run", "params", "metrics"]
    assert lines[2]["step"] == 3
    assert lines[1]["params"] == {"lr": "0.1"}
    assert {line["run"] for line in lines} == {"loop"}


def test_reading_goes_on_where_it_was(box: Outbox) -> None:
    last = max(fill(box).lines())
    assert box.lines(last) == {}
    box.end_run("loop", "FINISHED")
    assert [line["op"] for line in box.lines(last).values()] == ["end"]


def test_a_long_outbox_is_read_in_parts(box: Outbox) -> None:
    whole = fill(box).lines()
    first = box.lines(limit=2)
    assert {**first, **box.lines(max(first), 2)} == whole
    assert len(first) == 2


def test_nothing_there_is_nothing_to_read(box: Outbox) -> None:
    assert box.lines() == {}
    assert box.open_runs() == []


def test_work_that_is_not_tracked_writes_nothing(workspace: Workspace) -> None:
    box = fill(Outbox(None, "tiny-1"))
    assert box.lines() == {}
    assert not (workspace.state / "state.db").exists()


def test_threads_do_not_mix_each_others_lines(box: Outbox) -> None:
    threads = [
        threading.Thread(target=lambda n=n: [box.metrics(f"trial-{n}", {"x": i}, i) for i in range(50)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = list(box.lines().values())
    assert len(lines) == 200
    for n in range(4):
        assert [line["step"] for line in lines if line["run"] == f"trial-{n}"] == list(range(50))


def test_what_mlflow_has_is_not_owed(state: Path) -> None:
    whole, waiting, _ = (fill(Outbox(state, name)) for name in ("whole", "waiting", "untouched"))
    fill(Outbox(state.with_name("other"), "elsewhere"))
    set_delivered(state, "whole", Delivered(max(whole.lines()), {"loop": "abc"}))
    set_delivered(state, "waiting", Delivered(min(waiting.lines()), {"loop": "def"}))
    assert delivered(state, "whole").runs == {"loop": "abc"}
    assert delivered(state, "untouched") == Delivered(0, {})
    assert undelivered(state) == ["untouched", "waiting"]


def test_numbers_that_no_store_takes_are_left_out(box: Outbox) -> None:
    box.metrics("loop", {"a": float("nan"), "b": float("inf"), "c": float("-inf"), "d": 1})
    assert next(iter(box.lines().values()))["metrics"] == {"d": 1.0}


def test_text_of_any_language_survives(box: Outbox) -> None:
    box.tags("loop", {"reason": "naïve\nλ\u2028 line", "lone": "\ud800"})
    (line,) = box.lines().values()
    assert line["tags"]["reason"] == "naïve\nλ\u2028 line"


def test_open_runs_are_those_begun_and_not_ended(box: Outbox) -> None:
    box.start_run("loop", "l", {})
    box.start_run("trial-0", "t0", {}, parent="loop")
    box.start_run("trial-1", "t1", {}, parent="loop")
    box.end_run("trial-0", "FINISHED")
    assert box.open_runs() == ["loop", "trial-1"]
    box.start_run("trial-0", "t0", {}, parent="loop")
    assert set(box.open_runs()) == {"loop", "trial-0", "trial-1"}


def test_a_line_of_a_process_that_lost_the_loop_is_refused(workspace: Workspace, state: Path) -> None:
    """The loop goes on elsewhere: the metrics of a paused process, or its end of a run, would be the other's."""
    with leased(workspace.state, "loop:tiny") as lease, leased(workspace.state, "loop:tiny") as other:
        fill(Outbox(state, "tiny-1", other))
        late, lines = Outbox(state, "tiny-1", lease), Outbox(state, "tiny-1").lines()
        with pytest.raises(LeaseLostError):
            late.end_run(LOOP_RUN, "FINISHED")
        assert late.lines() == lines


def test_ended_loops_of_all_projects_wait_and_a_running_one_delivers_its_own(workspace: Workspace) -> None:
    for project, loop_id, loop_state in (("a", "a-1", "failed"), ("b", "b-1", "running"), ("b", "b-0", "finished")):
        state = workspace.state / "projects" / project
        save_loop(state, LoopRecord(loop_id, loop_state, began=5.0))
        Outbox(state, loop_id).start_run(LOOP_RUN, loop_id, {})
    save_loop(workspace.state / "projects" / "a", LoopRecord("a-0", "finished", began=1.0))  # it has no lines
    assert waiting_loops(workspace.state) == {"a-1": ("a", 5.0), "b-0": ("b", 5.0)}
    box = Outbox(workspace.state / "projects" / "b", "b-0")
    set_delivered(workspace.state / "projects" / "b", "b-0", Delivered(max(box.lines()), {}))
    assert [*waiting_loops(workspace.state)] == ["a-1"]
    box.end_run(LOOP_RUN, "FINISHED")
    assert {*waiting_loops(workspace.state)} == {"a-1", "b-0"}
