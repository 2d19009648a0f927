"""One loop of a project runs at a time; an interrupted one goes on, a killed one is recorded."""

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.prefect import sigterm
from models.errors import LeaseLostError, StoreError, UsageError
from tasks.host import database, processes
from tasks.host.leases import leased
from tasks.host.object_store import ObjectStore
from tasks.host.processes import OWNER
from tasks.host.tables import leases
from tasks.host.workspace import Project
from tasks.loop import lifecycle, recording
from tasks.loop.history import last_loop, lease_of, read_loops, save_loop
from tasks.loop.lifecycle import _open_loop_state as open_book
from tasks.loop.lifecycle import name_loop, new_loop_id, open_loop, open_stage
from tasks.loop.loop import Loop, StepResult
from tasks.state.outbox import Outbox
from tests.conftest import MakeProject, Processes


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project("tiny")


@pytest.fixture
def other_process(project: Project, at_once: Processes) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """A function that runs code in another process, which has the project."""
    begin = (
        "from pathlib import Path\nfrom tasks.host.workspace import Workspace\n"
        "from tasks.loop import lifecycle\nfrom tasks.loop.lifecycle import open_stage\n"
        "lifecycle.CLEANUP_S = 0.2\n"
        f"project = Workspace(Path({str(project.workspace.root)!r})).project('tiny')\n"
    )
    return lambda code: at_once(begin + code)[0]


def test_a_second_loop_of_the_project_is_refused_and_told_of_the_first(
    project: Project, other_process: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    with open_stage(project):
        done = other_process("with open_stage(project): pass")
    assert done.returncode == 1
    assert "another command works on tiny now: wait for it" in done.stderr
    assert "StoreError" in done.stderr
    assert other_process("with open_stage(project): pass").returncode == 0


def test_a_killed_loop_leaves_no_lock(
    project: Project, other_process: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    done = other_process("import os, signal\nwith open_stage(project): os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == -9
    with open_stage(project):
        pass


def test_ids_are_never_the_same_and_sort_by_time() -> None:
    ids = {new_loop_id("tiny") for _ in range(50)}
    assert len(ids) == 50
    assert all(made.startswith("tiny-2") for made in ids)


def write_book(project: Project, state: str, *overrides: str) -> str:
    """The book of an earlier loop in that state."""
    with open_stage(project) as loop:
        pass
    from models.project_spec.reader import read_spec

    loop_state = open_book(loop.state, project, read_spec(project.spec_path, overrides), "tiny-before")
    save_loop(loop.state, replace(loop_state, state=state))
    return "tiny-before"


@pytest.mark.parametrize(
    ("state", "taken_up"), [("running", True), ("failed", True), ("killed", True), ("finished", False)]
)
def test_a_loop_that_was_cut_short_is_taken_up_under_its_name(project: Project, state: str, taken_up: bool) -> None:
    before = write_book(project, state)
    assert (name_loop(project) == before) is taken_up


def test_another_intent_is_another_loop(project: Project) -> None:
    before = write_book(project, "killed")
    assert name_loop(project, ["train.lr=0.5"]) != before


def test_a_project_that_was_never_run_has_no_loop(project: Project) -> None:
    assert last_loop(project.state("tiny")) is None
    assert name_loop(project).startswith("tiny-")


def test_two_projects_of_one_name_are_refused(project: Project, make_project: MakeProject, tmp_path: Path) -> None:
    write_book(project, "finished")
    twin = make_project("tiny", folder=tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="the name 'tiny' is taken by"):
        write_book(twin, "finished")


def test_a_project_that_moved_keeps_its_name(project: Project, tmp_path: Path) -> None:
    write_book(project, "finished")
    moved = Project(project.workspace, project.folder.rename(tmp_path / "moved"))
    write_book(moved, "finished")


def test_a_read_only_workspace_is_a_store_error(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(project.workspace.state))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreError, match="LOOPLINE_HOME"), open_stage(project):
        pass


def test_the_owner_mark_is_not_left_behind(project: Project) -> None:
    with open_stage(project):
        pass
    assert OWNER not in os.environ
    assert processes.is_alive(processes.identity())


def test_a_run_that_is_started_again_waits_for_its_former_process(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Prefect does it when a pod gets SIGTERM: the next pod begins before the lease of the former one has ended."""
    state, waits = project.workspace.state, []
    with pytest.raises(KeyboardInterrupt), open_loop(project, flow_run_id="run"):
        raise KeyboardInterrupt
    holder = {"host": "former-pod", "pid": 7, "started": "deadbeef/1"}
    mine = leases.c.name == lease_of(project.state("tiny"))

    def lease_until(until: float | None) -> None:
        with database.writing(state) as connection:
            connection.execute(leases.update().where(mine).values(holder=holder, until=until))

    def end_the_former(_: float) -> None:
        waits.append(None)
        lease_until(None)

    lease_until(time.time() + 3600)
    monkeypatch.setattr(lifecycle, "CLEANUP_S", 0.2)
    with pytest.raises(StoreError, match="former-pod, pid 7, has it"), open_loop(project, flow_run_id="another run"):
        pytest.fail("two loops at once")
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=end_the_former)
    monkeypatch.setattr("tasks.host.leases.time", clock)
    with open_loop(project, flow_run_id="run"):
        assert len(waits) == 1


def test_a_loop_that_another_machine_took_over_records_nothing_more(project: Project) -> None:
    """As Kubernetes and Prefect may do it: the same loop is carried out twice at once."""
    state = project.state("tiny")

    def carry(loop: Loop, other: ExitStack) -> None:
        loop.carry_out("ingest", lambda *_: StepResult(result={"rows": 1}))
        other.enter_context(leased(project.workspace.state, lease_of(state)))
        loop.carry_out("validate-raw", lambda *_: StepResult(result={"status": "valid"}))

    with ExitStack() as other, pytest.raises(LeaseLostError), open_loop(project) as loop:
        carry(loop, other)
    assert loop.step_cache.records.latest("ingest") is not None
    assert loop.step_cache.records.latest("validate-raw") is None
    last = last_loop(state)
    assert last is not None
    assert (last.loop_id, last.state) == (loop.id, "running"), "its end is the other's to record"
    assert read_loops(state) == []


@pytest.mark.parametrize("name", ["published/card.html/00000041", "checkpoints/train/k/epoch-00000041/blobs/x"])
def test_after_a_restored_database_epochs_go_on_above_those_of_the_object_store(
    name: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPLINE_ROOT", f"file://{tmp_path}/store")
    for expected in (42, 43):
        ObjectStore(f"file://{tmp_path}/store").put(f"projects/tiny/{name}", b"of a loop that the copy has not seen")
        with open_stage(project) as stage:
            assert stage.epoch == expected


def test_a_data_stage_that_another_machine_took_over_records_nothing(project: Project) -> None:
    other = ExitStack()

    def taken_over(*_: object) -> StepResult:
        other.enter_context(leased(project.workspace.state, lease_of(project.state("tiny"))))
        return StepResult(result={"rows": 1})

    with other, open_stage(project) as stage, pytest.raises(LeaseLostError):
        stage.carry_out("ingest", taken_over)
    assert stage.step_cache.records.latest("ingest") is None


def test_the_step_that_runs_is_on_record(project: Project) -> None:
    seen = []

    def act(*_: object) -> StepResult:
        last = last_loop(project.state("tiny"))
        assert last is not None
        seen.append((last.state, last.step))
        return StepResult(result={"rows": 1})

    for _ in range(2):
        with open_loop(project) as loop:
            loop.carry_out("ingest", act)
    assert seen == [("running", "ingest")]
    last = last_loop(project.state("tiny"))
    assert last is not None
    assert (last.state, last.step) == ("finished", "")


def test_a_stop_counts_from_when_the_page_offers_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = lifecycle._begin_run

    def begin_slowly(loop: Loop) -> None:
        Outbox(loop.state, loop.id).request_stop("Ada", is_signal=True)
        begin(loop)

    monkeypatch.setattr(lifecycle, "_begin_run", begin_slowly)
    monkeypatch.setattr(sigterm, "_end", lambda _: None)  # the tests' process goes on
    with sigterm.stoppable(recording.STOP_SIGNAL), pytest.raises(KeyboardInterrupt), open_loop(project):
        time.sleep(30)
