"""The acts that a process does under a lease: in a paused process, and in the one that takes over."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import StoreError
from models.files import sha256, write_json
from models.pipeline.records import StepRecord
from models.project_spec.search import Search
from models.training.job import CHECKPOINT_MANIFEST, CHECKPOINTS
from models.triggers.signal import PastLoop, Signal
from tasks.dashboard.approvals import request_retraining
from tasks.host import database, processes
from tasks.host.leases import Lease, leased
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.loop.history import LoopRecord, lease_of, record_loop, save_loop, save_step
from tasks.loop.job_uploads import uploaded
from tasks.loop.lifecycle import open_loop, open_stage
from tasks.loop.loop import SilentReporter
from tasks.mlflow.delivery import MlflowExporter
from tasks.operations.reap import reap
from tasks.operations.retrain import weigh
from tasks.state.outbox import LOOP_RUN, Outbox
from tasks.state.step_records import StepRecords
from tasks.tools.optuna_study import ask, name_study, open_study, tell
from tests.loop_steps import STEPS
from tests.time.pausing import pause

if TYPE_CHECKING:
    from optuna import Study, Trial

PROJECT, LOOP = "p", "p-1"


@contextlib.contextmanager
def loop_lease(workspace: Workspace) -> Iterator[tuple[Path, Lease]]:
    """Hold the loop's lease; yields the project's folder of state with it."""
    state = workspace.state / "projects" / PROJECT
    state.mkdir(parents=True, exist_ok=True)
    with leased(workspace.state, lease_of(state)) as lease:
        print(f"epoch {lease.epoch}", flush=True)
        yield state, lease


def _in_a_loop(workspace: Workspace, act: Callable[[Path, Lease], None]) -> None:
    with loop_lease(workspace) as (state, lease):
        save_loop(state, LoopRecord(LOOP, "running", process=processes.identity()), lease)
        act(state, lease)


class Notes(SilentReporter):
    """Prints what a loop tells a person."""

    def note(self, text: str) -> None:
        """Print it."""
        print(f"note: {text}", flush=True)


def run_loop(workspace: Workspace, until: str = "") -> None:
    """Run a whole loop, or go on with one; with `until` it ends in an error after that step.

    Raises:
        StoreError: The loop has come to the step.
    """
    with open_loop(workspace.project(PROJECT), reporter=Notes()) as loop:
        for name, step in STEPS.items():
            step(loop)
            if name == until:
                raise StoreError(f"ended after {until}")


def register_version(workspace: Workspace, mark: str, run: str) -> None:
    """Register the version of a key, made by this run of MLflow."""
    registry = open_registry(workspace, PROJECT)

    def act(state: Path, lease: Lease) -> None:
        registry.create("k", f"file://{state}", run, None, {"mark": mark}, "", lease)

    _in_a_loop(workspace, act)


def promote_version(workspace: Workspace, version: str, expected: str) -> None:
    """Make a version the champion, as a person does."""
    open_registry(workspace, PROJECT).promote(version, expected, reason=f"{version} in place of {expected}")


def upload_checkpoint(workspace: Workspace, mark: str) -> None:
    """Train until a checkpoint, upload it, and go on."""
    with open_stage(workspace.project(PROJECT), Notes()) as loop:
        folder = loop.work("train", "k")
        checkpoint = folder / CHECKPOINTS / "step-1"
        with contextlib.suppress(KeyboardInterrupt), uploaded(loop, folder):
            checkpoint.mkdir(parents=True, exist_ok=True)
            (checkpoint / "state").write_text(mark)
            write_json(checkpoint / CHECKPOINT_MANIFEST, {"state": sha256(checkpoint / "state")})
            raise KeyboardInterrupt  # it is uploaded at once
        loop.confirm()


def fetch_checkpoint(workspace: Workspace) -> str:
    """Return what the newest checkpoint of any machine holds."""
    with open_stage(workspace.project(PROJECT)) as loop:
        folder = loop.work("train", "k")
        shutil.rmtree(folder)
        with uploaded(loop, folder):
            return (folder / CHECKPOINTS / "step-1" / "state").read_text()


def decide(workspace: Workspace, flow_run: str) -> None:
    """Decide on a signal in a flow run."""
    asked = Signal(id="s1", kind="person", at=1.0, reason="because")
    print(f"note: {weigh(workspace.project(PROJECT), asked, flow_run).loop_id}", flush=True)


def ask_for_loop(workspace: Workspace) -> None:
    """Ask for a loop, as a person does on the dashboard."""
    request_retraining(workspace, PROJECT, "because")


def rest_in_transaction(workspace: Workspace) -> None:
    """Pause in a transaction that writes."""
    with database.writing(workspace.state):
        pause("a transaction")


def die_in_loop(workspace: Workspace) -> None:
    """Begin a loop, and be killed in a trial of its search."""

    def act(state: Path, lease: Lease) -> None:
        Outbox(state, LOOP, lease).start_run(LOOP_RUN, LOOP, {})
        draw_trial(workspace, state, lease)
        os.kill(os.getpid(), signal.SIGKILL)

    _in_a_loop(workspace, act)


def draw_trial(workspace: Workspace, state: Path, lease: Lease) -> tuple[Study, Trial]:
    """Open the study of the loop's search, and begin a trial."""
    folder, search = state / "work" / "search" / "k", Search(sampler="random")
    folder.mkdir(parents=True, exist_ok=True)
    study = open_study(workspace, name_study(folder, PROJECT, LOOP).study, search, "maximize", {}, lease.confirm)
    return study, ask(study, search, {}, 0, 0)


def finish_loop(workspace: Workspace, amid: Callable[[], object] = lambda: None) -> None:
    """Go on with the loop of another process, to its end; call `amid` during a trial."""

    def act(state: Path, lease: Lease) -> None:
        study, trial = draw_trial(workspace, state, lease)
        amid()
        tell(study, trial, 1.0, "COMPLETE")
        Outbox(state, LOOP, lease).end_run(LOOP_RUN, "FINISHED")
        save_loop(state, LoopRecord(LOOP, "finished"), lease)
        record_loop(state, PastLoop(loop_id=LOOP, began=1.0, ended=2.0, outcome="kept"), lease)

    _in_a_loop(workspace, act)


def reap_loop(workspace: Workspace) -> None:
    """Clean up after the project's dead loop."""
    for line in reap(workspace, PROJECT):
        print(f"note: {line}", flush=True)


def begin_step(workspace: Workspace, mark: str) -> None:
    """Save that the loop begins a step, which is named by the process that does so."""
    _in_a_loop(workspace, lambda state, lease: save_step(state, LOOP, mark, lease))


def save_state(workspace: Workspace, mark: str) -> None:
    """Save the loop's state."""
    with loop_lease(workspace) as (state, lease):
        save_loop(state, LoopRecord(LOOP, "finished", step=mark), lease)


def end_loop(workspace: Workspace, mark: str) -> None:
    """Record the loop's end in the history."""
    past = PastLoop(loop_id=LOOP, began=1.0, ended=2.0, outcome="kept", reason=mark)
    _in_a_loop(workspace, lambda state, lease: record_loop(state, past, lease))


def write_line(workspace: Workspace, mark: str) -> None:
    """Write a line for MLflow."""
    _in_a_loop(workspace, lambda state, lease: Outbox(state, LOOP, lease).end_run(LOOP_RUN, mark))


def record_step(workspace: Workspace, mark: str) -> None:
    """Record that a step is done."""

    def act(state: Path, lease: Lease) -> None:
        record = StepRecord(
            step="train", key="k", parts={}, outputs={}, digest=mark, result={}, loop_id=LOOP, finished=1.0, seconds=1.0
        )
        StepRecords(state, workspace.root).save(record, lease)

    _in_a_loop(workspace, act)


def deliver_log(workspace: Workspace) -> None:
    """Carry what a loop left in the outbox to MLflow."""
    MlflowExporter(workspace, PROJECT, LOOP).deliver()
