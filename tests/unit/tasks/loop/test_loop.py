"""A step is carried out exactly once, whatever kills it; one loop of a project runs at a time."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from models.errors import LeaseLostError, StoreError, UsageError
from models.pipeline.records import StepRecord
from tasks.host import database, processes
from tasks.host.leases import leased
from tasks.host.tables import leases
from tasks.host.workspace import Project
from tasks.loop.history import last_loop, lease_of, read_loops, save_loop
from tasks.loop.loop import OWNER, Inputs, Loop, StepResult, name_loop, new_loop_id, open_loop, open_stage
from tasks.loop.loop import _open_loop_state as open_book
from tests.conftest import MakeProject


class Told:
    """Keeps what a loop reports."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    def step(self, name: str, state: str, detail: str = "") -> None:
        self.steps.append((name, state))

    def progress(self, name: str, done: int, total: int, detail: str = "") -> None:
        pass

    def note(self, text: str) -> None:
        pass


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project("tiny")


def ingest(loop: Loop, content: str = "raw", calls: list[Path] | None = None) -> tuple[StepRecord, bool]:
    def act(_: Inputs, folder: Path) -> StepResult:
        if calls is not None:
            calls.append(folder)
        loop.project.raw.parent.mkdir(parents=True, exist_ok=True)
        loop.project.raw.write_text(content)
        return StepResult([loop.project.raw], {"rows": 3})

    return loop.carry_out("ingest", act)


def test_a_step_done_is_not_done_again(project: Project) -> None:
    calls: list[Path] = []
    told = Told()
    for expected in (False, True):
        with open_stage(project, told) as loop:
            record, was_done = ingest(loop, calls=calls)
            assert was_done is expected
            assert record.result == {"rows": 3}
            assert loop.ran == ([] if expected else ["ingest"])
    assert len(calls) == 1
    assert told.steps == [("ingest", "run"), ("ingest", "ok"), ("ingest", "done")]


def test_code_that_changes_during_a_loop_is_in_the_next_key(make_project: MakeProject) -> None:
    project = make_project("tiny")
    spec = (project.folder / "project.yaml").read_text()
    (project.folder / "project.yaml").write_text(spec.replace("source: data.csv", "source: ./own.py:load"))
    with open_stage(project, Told()) as loop:
        for number in (1, 2):
            (project.folder / "own.py").write_text(f"def load():\n    return {number}\n")
            assert ingest(loop)[1] is False
        assert ingest(loop)[1] is True


def test_a_step_that_failed_is_done_again_in_the_same_folder(project: Project) -> None:
    folders = []

    def fail(_: Inputs, folder: Path) -> StepResult:
        folders.append(folder)
        (folder / "checkpoint").write_text("half")
        raise KeyboardInterrupt

    told = Told()
    with pytest.raises(KeyboardInterrupt), open_stage(project, told) as loop:
        loop.carry_out("ingest", fail)
    assert told.steps[-1] == ("ingest", "stopped")
    calls: list[Path] = []
    with open_stage(project) as loop:
        _, was_done = ingest(loop, calls=calls)
    assert not was_done
    assert calls == folders
    assert (calls[0] / "checkpoint").read_text() == "half"


def test_a_lost_or_changed_output_is_made_again(project: Project) -> None:
    for spoil in (lambda: project.raw.unlink(), lambda: project.raw.write_text("RAW")):
        with open_stage(project) as loop:
            ingest(loop)
        spoil()
        with open_stage(project) as loop:
            assert ingest(loop)[1] is False


def test_a_refreshed_step_runs_although_it_stands(project: Project) -> None:
    with open_stage(project) as loop:
        ingest(loop)
    with open_stage(project) as loop:
        loop.refresh = frozenset({"ingest"})
        record, was_done = ingest(loop, "more")
    assert not was_done
    assert record.outputs[loop.step_cache.records.name(project.raw)] == loop.step_cache.hashes.of(project.raw)


def test_a_loop_that_goes_on_does_not_refresh_again_what_it_had_refreshed(project: Project) -> None:
    with open_stage(project) as loop:
        loop.refresh = frozenset({"ingest"})
        assert ingest(loop)[1] is False
        assert ingest(loop)[1] is True


def test_the_digest_is_of_the_outputs_so_that_equal_results_change_nothing_after(project: Project) -> None:
    with open_stage(project) as loop:
        first, _ = ingest(loop)
    (project.folder / "data.csv").write_text("x,c,y\n9,u,no\n")
    with open_stage(project) as loop:
        second, was_done = ingest(loop)
    assert not was_done
    assert first.key != second.key
    assert first.digest == second.digest


def other_process(project: Project, code: str) -> subprocess.CompletedProcess[str]:
    script = (
        "from pathlib import Path\nfrom tasks.host.workspace import Workspace\n"
        "from tasks.loop.loop import open_stage\n"
        f"project = Workspace(Path({str(project.workspace.root)!r})).project('tiny')\n{code}"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=Path.cwd())


def test_a_second_loop_of_the_project_is_refused_and_told_of_the_first(project: Project) -> None:
    with open_stage(project):
        done = other_process(project, "with open_stage(project): pass")
    assert done.returncode == 1
    assert "another command works on tiny now: wait for it" in done.stderr
    assert "StoreError" in done.stderr
    assert other_process(project, "with open_stage(project): pass").returncode == 0


def test_a_killed_loop_leaves_no_lock(project: Project) -> None:
    done = other_process(project, "import os, signal\nwith open_stage(project): os.kill(os.getpid(), signal.SIGKILL)")
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
