"""Runs the `train` flow from the command line; the Prefect server starts during the first imports."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.console import reporting
from models.errors import LooplineError, StoreError, with_causes
from tasks.host import processes, server_access
from tasks.host.workspace import Project, Workspace
from tasks.loop.history import last_loop
from tasks.loop.recording import STOP_SIGNAL
from tasks.loop.runners import running_flow
from tasks.operations.reap import reap
from tasks.prefect.cancelling import CancelWatch
from tasks.prefect.events import TAG
from tasks.prefect.prefect_server import PrefectServer, is_working

if TYPE_CHECKING:
    from prefect import Flow


def carry_round(project: Project, name: str, overrides: list[str], refresh: list[str]) -> None:
    """Run the `train` flow in this process, with the workspace's own Prefect server or that of PREFECT_API_URL.

    The reaper first cleans up after an earlier run of the project. `name` is the spec's name.

    Raises:
        LooplineError: The error that the loop raised.
    """
    project.workspace.make()
    reporting.use(reporting.for_terminal())
    with _prefect(project.workspace):
        from flows.train import train  # heavy: imported while the server starts

        _wait(project.workspace)
        for line in reap(project.workspace, name):
            reporting.current().note(line)
        _carry(train, project, name, overrides, refresh)


def _carry(train: Flow[..., Any], project: Project, name: str, overrides: list[str], refresh: list[str]) -> None:
    """Call the flow; if the Prefect server fails meanwhile, only its page lacks the loop's end."""
    import httpx
    from prefect import tags
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    # Joining the heartbeat's thread costs a second per flow; here the reaper checks the process itself.
    is_own = "prefect" not in server_access.elsewhere(project.workspace)
    unwatched = temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None} if is_own else {})
    reporting.use(reporting.TwoReporters(reporting.current(), reporting.PrefectReporter()))
    with unwatched, running_flow(project.state(name)) as tag, tags(tag, TAG, name), CancelWatch(tag, STOP_SIGNAL):
        try:
            state = train(str(project.folder), overrides, refresh=refresh, return_state=True)
        except httpx.TransportError as error:
            _settle_without_prefect(error, project.state(name))
            return
    if not state.is_completed():
        state.result()


def _settle_without_prefect(error: Exception, state: Path) -> None:
    """Check in the loop's state how it ended, after Prefect's server became unreachable.

    Raises:
        LooplineError: The error that the loop raised, or that it could not begin.
    """
    last = last_loop(state)
    if last and last.process == processes.identity() and last.state == "finished":
        reporting.current().note("the Prefect server went away: its page does not show how the loop ended")
        return
    for cause in with_causes(error):
        if isinstance(cause, LooplineError):
            raise cause
    raise StoreError(
        f"the Prefect server at {os.environ.get('PREFECT_API_URL')} cannot be reached ({error}): run again; finished "
        "steps are kept"
    ) from error


@contextlib.contextmanager
def _prefect(workspace: Workspace) -> Iterator[None]:
    """Use a Prefect server that runs or is starting, and keep it up during the block.

    The address is set before the import of Prefect, because Prefect reads it then.
    """
    named = os.environ.get("PREFECT_API_URL", "").rstrip("/")
    if named and is_working(named):
        yield
        return
    if named:
        reporting.current().note(f"no Prefect server answers at {named}: using the workspace's own")
    with PrefectServer(workspace).running() as address:
        server_access.use(workspace, address)
        yield


def _wait(workspace: Workspace) -> None:
    if PrefectServer(workspace).url() == os.environ["PREFECT_API_URL"]:
        PrefectServer(workspace).wait()
