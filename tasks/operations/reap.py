"""The reaper: cleans up after dead loops in every store; it checks whether a process is alive, not how old it is.

A loop is dead when nobody holds the project's lock or lease, and the process that ran it is gone or ran on another
host. The reaper takes the lease before it writes anything: of two reapers, or of a reaper and a loop that goes on
elsewhere, one acts. It then ends the loop's open MLflow runs as KILLED, its running Optuna trials as failed, and its
Prefect runs and their tasks as Crashed. It also ends processes that the loop started, removes half-written files, and
delivers log entries that wait for the tracking store. The training of a dead loop goes on in its place, unless a person
has cancelled the loop's flow run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from models.errors import LooplineError, StoreError
from models.files import read_json, storing
from models.project_spec.blocks import NAME_PATTERN, Train
from models.training.job import JOB_FILE, RESULT_FILE
from tasks.gc import half_written
from tasks.gc.candidates import discard
from tasks.host import leases, processes
from tasks.host.leases import Lease, is_leased
from tasks.host.locks import tried
from tasks.host.processes import OWNER
from tasks.host.server_access import elsewhere
from tasks.host.workspace import Workspace
from tasks.loop.history import LOOP_LOCK, OVER, LoopRecord, is_running, last_loop, lease_of, save_loop
from tasks.loop.outcome import conclude_killed
from tasks.loop.runners import dead_runners, remove_runners
from tasks.mlflow import registry_reader
from tasks.mlflow.delivery import MlflowExporter
from tasks.prefect.flow_runs import close_task_runs, crash_runs, ended_with_open_tasks, is_run_cancelled
from tasks.prefect.prefect_server import PrefectServer, is_working
from tasks.prefect.worker import pool_of
from tasks.ranks.launcher import cancel_left
from tasks.ranks.places import find_place
from tasks.state.outbox import Outbox, waiting_loops
from tasks.state.workspace_id import workspace_id
from tasks.tools.optuna_study import STUDY_FILE, fail_open_trials


def reap(workspace: Workspace, only: str | None = None) -> list[str]:
    """Clean up after every dead loop, or those of one project; return a line of text for each action.

    Args:
        workspace: The workspace to clean up.
        only: The project whose loop begins now, and delivers what earlier loops left; default: all projects.

    Raises:
        StoreError: A project's folder cannot be made.
    """
    api = PrefectServer(workspace).api()
    is_silent = api is not None and not is_working(api)  # each question to it would wait for half a minute
    api = None if is_silent else api
    lines = [*_orphans(workspace), *_removed(half_written.of_workspace(workspace)), *_task_runs(workspace, api)]
    folders = {path.name for path in (workspace.state / "projects").glob("*") if path.is_dir()}
    names = {name for name in folders if re.fullmatch(NAME_PATTERN, name)} | set(workspace.folders())
    for name in sorted(names & {only} if only else names):
        state = workspace.state / "projects" / name
        with storing(state):
            state.mkdir(parents=True, exist_ok=True)  # the loops of another machine have no folder here
        cancelled = _cancelled_loop(api, state)
        with tried(state / LOOP_LOCK) as free:  # false while a living loop holds it
            if free and not is_leased(workspace.state, lease_of(state)):  # by a loop of another machine
                lines += _project(workspace, state, cancelled)
        lines += _flow_runs(state, is_silent)
    if only is None:
        lines += _delivered(workspace)
    return lines


def _project(workspace: Workspace, state: Path, cancelled: str) -> Iterator[str]:
    """Clean up a project whose lock this process holds; the loop's lease, too, if it is not closed yet."""
    loop = last_loop(state)
    if loop is None or not _is_open(loop):
        yield from _left(workspace, state, loop, cancelled)
        return
    with leases.tried(workspace.state, lease_of(state)) as lease:  # whoever still computes for it records nothing more
        if not isinstance(lease, Lease):  # another process closes it, or goes on with it
            return
        loop = last_loop(state)
        if loop and _is_open(loop):
            yield from _closed(workspace, state, loop, lease, is_cancelled=loop.loop_id == cancelled)
        yield from _left(workspace, state, loop, cancelled)


def _is_open(loop: LoopRecord) -> bool:
    """Return whether a loop still says that it runs, though its process is gone or was elsewhere."""
    return loop.state == "running" and not processes.is_alive_here(loop.process)


def _closed(workspace: Workspace, state: Path, loop: LoopRecord, lease: Lease, *, is_cancelled: bool) -> Iterator[str]:
    """Close a dead loop; the lease is checked at each record, since this process may be paused as well."""
    yield from _studies(workspace, state, lease)
    # first: who is killed in between does it once more
    died = conclude_killed(workspace, state, loop, lease, is_cancelled=is_cancelled)
    outbox = Outbox(state, loop.loop_id, lease)
    for run in reversed(outbox.open_runs()):
        outbox.end_run(run, "KILLED", died)
    ending = "cancelled" if is_cancelled else "killed"
    save_loop(state, replace(loop, state=ending), lease)
    yield f"{loop.loop_id}: was {ending}; marked as {ending} (`loopline run` continues it)"


def _left(workspace: Workspace, state: Path, loop: LoopRecord | None, cancelled: str) -> Iterator[str]:
    """Clean up what the project's loops left behind; `loop` is the last of them as it was before."""
    yield from _removed(half_written.of_project(state, loop.folder if loop else ""))
    if loop and loop.loop_id == cancelled:
        yield from _cancelled_training(workspace, state, loop)


def _removed(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        discard(path)
        yield f"{path.name}: half-written; removed"


def _delivered(workspace: Workspace) -> Iterator[str]:
    """Deliver the logs of ended loops; no project's lock is held, since the tracking store may be silent for long."""
    with registry_reader.reading():
        for loop_id, loop in waiting_loops(workspace.state).items():
            try:
                MlflowExporter(workspace, loop.project, loop_id).deliver(timeout_s=0)
                yield f"{loop_id}: delivered what waited for the tracking store"
            except StoreError as error:
                yield f"{loop_id}: still waits: {error}"


def _cancelled_training(workspace: Workspace, state: Path, loop: LoopRecord) -> Iterator[str]:
    """Cancel the training of a loop whose flow run was cancelled when it had no process, such as between two pods."""
    for path in sorted((state / "work" / "train").glob(f"*/{JOB_FILE}")):
        place_name = (read_json(path).get("train") or {}).get("on")
        if not place_name or (path.parent / RESULT_FILE).exists():
            continue
        try:
            place = find_place(workspace, Train(on=place_name))
            if place and cancel_left(place, path.parent, workspace_id(workspace.state)):
                yield f"{loop.loop_id}: its flow run was cancelled; cancelled its training on {place_name} too"
        except LooplineError as error:
            yield f"{loop.loop_id}: its flow run was cancelled, but perhaps not its training: {error}"


def _cancelled_loop(api: str | None, state: Path) -> str:
    """Return the id of the last loop if it is not over and a person has cancelled its flow run, else an empty string.

    Prefect is asked before the project's lock is taken, since it may be silent; if it does not say it, it is not.
    """
    loop = last_loop(state)
    if api is None or loop is None or loop.state in OVER or not loop.flow_run or is_running(state, loop):
        return ""
    return loop.loop_id if is_run_cancelled(api, loop.flow_run) else ""


def _studies(workspace: Workspace, state: Path, lease: Lease) -> Iterator[str]:
    notes = list((state / "work" / "search").glob(f"*/{STUDY_FILE}"))
    if not notes:
        return
    for name in filter(None, (read_json(note).get("study") for note in notes)):
        for number in fail_open_trials(workspace, name, lease.confirm):
            yield f"{name}: trial {number} was interrupted; marked as failed"


def _flow_runs(state: Path, is_silent: bool) -> Iterator[str]:
    """Mark the Prefect runs of dead processes as Crashed; while the server is away their notes stay."""
    api, dead = os.environ.get("PREFECT_API_URL"), dead_runners(state)
    if not dead or not api:
        return
    try:
        if is_silent:
            raise StoreError(f"{api} does not answer: start it again, or correct PREFECT_API_URL")
        crashed = crash_runs(api, {*dead.values()})
        yield from (f"{run['name']}: marked as Crashed in Prefect" for run in crashed)
        remove_runners(state, dead)
        yield from close_task_runs(api, [run["id"] for run in crashed])
    except StoreError as error:
        yield f"{state.name}: runs of ended processes still wait for Prefect: {error}"


def _task_runs(workspace: Workspace, api: str | None) -> Iterator[str]:
    """Close tasks that Prefect lists as open in ended flow runs; if the server is down, the next pass tries again."""
    if api is None:
        return
    pool = pool_of(workspace) if "prefect" in elsewhere(workspace) else None
    with contextlib.suppress(StoreError):
        yield from close_task_runs(api, ended_with_open_tasks(api, pool, time.time()))


def _orphans(workspace: Workspace) -> Iterator[str]:
    """Kill processes marked with a loop of this workspace whose main process is gone."""
    import psutil

    for process in psutil.process_iter(["pid"]):
        with contextlib.suppress(psutil.Error, ValueError, KeyError, TypeError):  # any process may say anything there
            mark = json.loads(process.environ().get(OWNER, "{}"))
            if not isinstance(mark, dict):
                continue
            ours = mark.get("workspace") == str(workspace.root) and process.pid != os.getpid()
            if ours and not processes.is_alive(mark):
                process.send_signal(signal.SIGKILL)
                yield f"process {process.pid}: its loop is gone; ended"
