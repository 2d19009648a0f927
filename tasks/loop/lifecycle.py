"""Begins, continues and ends a loop: its id, its lock and lease, its run, its end."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from models.errors import LeaseLostError, StoreError
from models.pipeline.parameters import set_parameters
from models.project_spec.blocks import Spec
from models.project_spec.reader import read_spec
from models.training.families import families_of
from tasks.gc import loop_end
from tasks.gc.retention import keep_days
from tasks.host import database, processes
from tasks.host.leases import TTL_S, Lease, leased
from tasks.host.locks import held
from tasks.host.object_store import object_store
from tasks.host.processes import OWNER
from tasks.host.workspace import Project, Workspace
from tasks.loop.champion import hear, look_after_loop
from tasks.loop.dvc_results import show_in_dvc
from tasks.loop.history import LOOP_LOCK, OVER, LoopRecord, intent_of, is_running, last_loop, lease_of, save_loop
from tasks.loop.loop import TORCH_STEPS, Loop, Reporter, SilentReporter
from tasks.loop.machine_samples import MachineSamples
from tasks.loop.outcome import conclude, conclude_killed, outcome_of
from tasks.loop.recording import StopRequests, recorded
from tasks.loop.runners import add_runner
from tasks.mlflow.delivery import BackgroundExporter, MlflowExporter
from tasks.mlflow.lost_store import refuse_lost
from tasks.mlflow.provenance import source_tags
from tasks.ranks.places import checked_spec
from tasks.state.ingest_segments import receive
from tasks.state.outbox import LOOP_RUN, SPEC_FILE, Outbox, waiting_loops
from tasks.state.step_store import highest_epoch

HANDOVER_S = 2 * TTL_S
"""The longest time from a SIGTERM to the end of a lease: a pod may renew it until Kubernetes kills it after 30 s."""
CLEANUP_S = 5.0
"""The longest time for which a clean-up holds a project of which no loop runs."""


@contextlib.contextmanager
def open_loop(
    project: Project,
    overrides: Sequence[str] = (),
    *,
    loop_id: str | None = None,
    trigger: str = "person",
    reporter: Reporter | None = None,
    refresh: Sequence[str] = (),
    flow_run_id: str | None = None,
) -> Iterator[Loop]:
    """Begin a loop, or continue a killed one, and record its end, also after an error.

    Raises:
        UsageError: The spec is wrong, or another project has its name.
        GateRefused: The registered model belongs to another workspace.
        StoreError: Another loop of the project runs, the registry was lost, or the object store cannot be used.
    """
    spec = checked_spec(project, overrides)
    days = keep_days()
    project.workspace.make()
    state = project.state(spec.name)
    refuse_lost(project.workspace, spec.name)
    if store := object_store():
        store.check()
        if spec.retrain.feedback:
            receive(state)  # predictions and labels of other hosts
    with _only_loop(state, flow_run_id) as lease, _marked(project.workspace, state, flow_run_id):
        hear(project.workspace, spec.name)
        loop_id = loop_id or name_loop(project, overrides)
        stops = StopRequests(Outbox(state, loop_id))
        loop_state = _open_loop_state(state, project, spec, loop_id, trigger, flow_run_id or "", lease)
        loop = Loop(project, spec, loop_id, trigger, reporter or SilentReporter(), lease)
        loop.refresh = frozenset(refresh)
        _begin_run(loop)
        exporter = BackgroundExporter(loop.delivery, _earlier_logs(project.workspace, spec.name))
        exporter.start()
        failure = None
        try:
            with MachineSamples(loop.outbox), recorded(loop, stops), loop.rank_pool:
                if any(planned.state != "done" for planned in loop.step_cache.plan() if planned.step in TORCH_STEPS):
                    loop.rank_pool.warm(families_of(spec))  # imports while the data is read and checked
                yield loop
        except BaseException as error:
            failure = error
            raise
        finally:
            _end(loop, loop_state, failure)
            if trouble := exporter.finish():
                loop.report.note(f"logging waits: {trouble}")
        _follow_up(loop, days)


def _follow_up(loop: Loop, days: float) -> None:
    """Do what follows a loop that has ended well."""
    show_in_dvc(loop)
    look_after_loop(loop.workspace, loop.spec.name)
    _forget(loop, days)


def _earlier_logs(workspace: Workspace, name: str) -> list[MlflowExporter]:
    mine = [loop_id for loop_id, ended in waiting_loops(workspace.state).items() if ended.project == name]
    return [MlflowExporter(workspace, name, loop_id) for loop_id in mine]


def _begin_run(loop: Loop) -> None:
    tags = {"loopline.loop_id": loop.id, "loopline.trigger": loop.trigger, **source_tags(loop.project.folder)}
    loop.outbox.start_run(LOOP_RUN, loop.id, tags)
    loop.outbox.params(LOOP_RUN, set_parameters(loop.spec))
    loop.outbox.text(LOOP_RUN, SPEC_FILE, loop.spec.model_dump_json(indent=1))


def _end(loop: Loop, record: LoopRecord, failure: BaseException | None) -> None:
    """Record the end of a loop, unless another process has taken it over."""
    outcome = outcome_of(loop.ran, loop.done, failure)
    status = "finished" if failure is None else outcome if outcome in ("rejected", "cancelled") else "failed"
    try:
        loop.confirm()
        for run in reversed(loop.outbox.open_runs()):  # first: the reaper closes runs of a loop that is not ended yet
            loop.outbox.end_run(run, {"finished": "FINISHED", "cancelled": "KILLED"}.get(status, "FAILED"))
        conclude(loop, replace(record, state=status, step=loop.at if failure else ""), failure)
    except LeaseLostError as lost:
        loop.report.note(str(lost))


def _forget(loop: Loop, days: float) -> None:
    """Delete what no loop used for long, unless another process has taken the loop over."""
    freed = 0
    with contextlib.suppress(StoreError):  # the next loop tries again
        loop.confirm()
        loop_end.mark_used(map(loop.place, loop.done.values()))
        if loop.step_cache.store:
            loop.step_cache.store.renew(loop.done.values())
        if loop.lease:
            used = {loop.id, *(record.loop_id for record in loop.done.values())}
            freed += loop_end.collect(loop.workspace, loop.state, used, loop.lease)
    if freed:
        loop.report.note(f"work that no loop used for {days:g} days is gone: {freed / 1e6:,.1f} MB")


@contextlib.contextmanager
def open_stage(project: Project, reporter: Reporter | None = None) -> Iterator[Loop]:
    """Open a minimal loop for a data stage that DVC runs: it records its steps but logs to no tracking store.

    Raises:
        UsageError: The spec is wrong.
        StoreError: A loop of the project runs.
    """
    spec = read_spec(project.spec_path, (), project.shown_spec)
    project.workspace.make()
    with _only_loop(project.state(spec.name)) as lease:
        loop = Loop(project, spec, new_loop_id(spec.name), "dvc", reporter or SilentReporter(), lease)
        loop.outbox = Outbox(None, loop.id)
        yield loop


@contextlib.contextmanager
def _only_loop(state: Path, flow_run_id: str | None = None) -> Iterator[Lease]:
    """Hold the project's lock against this machine's processes, and its lease against other machines'.

    Prefect starts a flow run again while the process that got SIGTERM still ends, or was killed with its lease: the
    next process of the same run waits for that.
    """
    last = last_loop(state)
    timeout_s = 0.0 if last and is_running(state, last) else CLEANUP_S
    if flow_run_id and last and last.flow_run == flow_run_id:
        timeout_s = HANDOVER_S

    def busy() -> str:
        last = last_loop(state)
        if last is None or not processes.is_alive(last.process):
            return f"another command works on {state.name} now: wait for it"
        pid = last.process["pid"]
        return f"a loop of {state.name} runs already ({last.loop_id}, pid {pid}): wait for it, or end it"

    with (
        held(state / LOOP_LOCK, busy, timeout_s),
        leased(state.parents[1], lease_of(state), timeout_s, above=highest_epoch(state)) as lease,
    ):
        yield lease


@contextlib.contextmanager
def _marked(workspace: Workspace, state: Path, flow_run_id: str | None) -> Iterator[None]:
    """Mark this process for the reaper: an environment variable for child processes, and a note of the flow run."""
    os.environ[OWNER] = json.dumps({**processes.identity(), "workspace": str(workspace.root)})
    if flow_run_id:
        add_runner(state, flow_run_id)  # the reaper removes the note once Prefect knows the end of the run
    try:
        yield
    finally:
        os.environ.pop(OWNER, None)


def name_loop(project: Project, overrides: Sequence[str] = ()) -> str:
    """Return the id of the next loop with this intent: a new one, or the id of the interrupted loop."""
    spec = read_spec(project.spec_path, overrides, project.shown_spec)
    before = last_loop(project.state(spec.name))
    if before and before.state not in OVER and before.intent == intent_of(spec):
        return before.loop_id
    return new_loop_id(spec.name)


def _open_loop_state(
    state: Path,
    project: Project,
    spec: Spec,
    loop_id: str,
    trigger: str = "person",
    flow_run: str = "",
    lease: Lease | None = None,
) -> LoopRecord:
    """Save the state of a loop that begins or goes on.

    Raises:
        LeaseLostError: Another process has taken over the loop.
        UsageError: Another project has the name.
    """
    project.refuse_namesake(spec.name)
    before = last_loop(state)
    goes_on = before is not None and before.loop_id == loop_id and before.state not in OVER
    if before and before.state == "running" and not goes_on:
        conclude_killed(project.workspace, state, before, lease)
    loop_state = LoopRecord(
        loop_id=loop_id,
        state="running",
        intent=intent_of(spec),
        folder=str(project.folder),
        process=processes.identity(),
        began=before.began if before and goes_on else database.current_time(project.workspace.state),
        trigger=trigger,
        flow_run=flow_run,
    )
    save_loop(state, loop_state, lease)
    return loop_state


def new_loop_id(project: str) -> str:
    """Return a loop's name in all five tools: project, UTC time, eight random characters."""
    return f"{project}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
