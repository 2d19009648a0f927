"""Runs the `train` flow from the command line; the Prefect server starts during the first imports."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.console import reporting
from models.errors import LooplineError, StoreError
from tasks.host import processes, server_access
from tasks.host.workspace import Project, Workspace
from tasks.loop.loop import read_loop_state, run_note
from tasks.operations.reap import reap
from tasks.prefect.prefect_server import PrefectServer, is_healthy

if TYPE_CHECKING:
    from prefect import Flow


def carry_round(project: Project, name: str, overrides: list[str], refresh: list[str]) -> None:
    """Run the `train` flow here, seen by the workspace's own Prefect server or the one that PREFECT_API_URL names.

    First reaps what an earlier run of the project left behind. `name` is the spec's.

    Raises:
        LooplineError: Raised by the loop.
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
    """Call the flow. A Prefect server that goes away meanwhile costs its page the end of the loop, not the loop."""
    import httpx
    from prefect import tags
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    # Joining the heartbeat's thread costs a second a flow; this run needs none: the reaper looks at its process.
    unwatched = temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
    with unwatched, run_note(project.state(name)) as tag, tags(tag):
        try:
            state = train(str(project.folder), overrides, refresh=refresh, return_state=True)
        except httpx.TransportError as error:
            _settle_without_prefect(error, project.state(name))
            return
    if not state.is_completed():
        state.result()


def _settle_without_prefect(error: Exception, state: Path) -> None:
    """The outcome of the loop from its own state, if Prefect could not be told.

    Raises:
        LooplineError: Raised by the loop, or because it could not begin.
    """
    loop_state = read_loop_state(state) or {}
    if loop_state.get("process") == processes.identity() and loop_state["state"] == "finished":
        reporting.current().note("the Prefect server went away: its page does not show how the loop ended")
        return
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LooplineError):
            raise cause
        cause = cause.__context__
    raise StoreError(
        f"the Prefect server at {os.environ.get('PREFECT_API_URL')} cannot be reached ({error}): run again; the steps "
        "that are done are kept"
    ) from error


@contextlib.contextmanager
def _prefect(workspace: Workspace) -> Iterator[None]:
    """See that a Prefect server is there or on its way, and keep it up meanwhile.

    Its address is set before Prefect is imported, which is when Prefect reads it.
    """
    named = os.environ.get("PREFECT_API_URL", "").rstrip("/")
    if named and is_healthy(named):
        yield
        return
    if named:
        reporting.current().note(f"no Prefect server answers at {named}: going on with the workspace's own")
    with PrefectServer(workspace).running() as address:
        server_access.use(workspace, address)
        yield


def _wait(workspace: Workspace) -> None:
    if PrefectServer(workspace).url() == os.environ["PREFECT_API_URL"]:
        PrefectServer(workspace).wait()
