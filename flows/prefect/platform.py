"""Starts and ends the platform: starts services first, then deployments; handles running loops before the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from flows.prefect.deployments import deploy, import_flows
from models.errors import StoreError
from tasks.host import database, server_access
from tasks.host.workspace import Workspace
from tasks.operations.reap import reap
from tasks.platform import platform
from tasks.platform.services import ServiceState
from tasks.prefect.prefect_server import PrefectServer

POLL_S = 1.0
ADDRESS_POLL_S = 0.05
ADDRESS_TIMEOUT_S = 10.0
Ending = Literal["refuse", "wait", "force"]


def bring_up(
    workspace: Workspace,
    requested: dict[str, int],
    note: Callable[[str], None],
    tell: Callable[[ServiceState], None],
) -> None:
    """Start the services, deploy every project as soon as Prefect answers, and wait until each service is healthy.

    Raises:
        UsageError: A requested port cannot be used.
        StoreError: The state database cannot be used, or a service did not start; the others keep running.
    """
    with database.reading(workspace.state):
        pass  # else the worker would say so in its log, after the start of all
    low = platform.low_disk(workspace)
    for line in ([low] if low else []) + platform.start(workspace, requested):
        note(line)
    _import_ahead(workspace)
    for state in platform.healthy(workspace):
        tell(state)
        if state.name == "prefect":
            _deploy(workspace, note)


def _import_ahead(workspace: Workspace) -> None:
    """Import Prefect and the flows while the servers start: it takes seconds, and Prefect reads its address then."""
    deadline = time.monotonic() + ADDRESS_TIMEOUT_S
    while not PrefectServer(workspace).api():
        if time.monotonic() > deadline:
            return  # the later wait for the health check reports the problem
        time.sleep(ADDRESS_POLL_S)
    tell_prefect(workspace)

    import_flows()


def _deploy(workspace: Workspace, note: Callable[[str], None]) -> None:
    tell_prefect(workspace)

    plans = deploy(workspace, workspace.projects(), note=note)
    scheduled = sum(plan.schedule is not None for plan in plans)
    note(f"{len(plans)} deployments of {len({plan.name for plan in plans})} projects, {scheduled} on a schedule")


def take_down(workspace: Workspace, note: Callable[[str], None], ending: Ending = "force") -> bool:
    """End the platform; return whether any part of it was running.

    Args:
        workspace: The platform's workspace.
        note: Receives messages.
        ending: What happens to running flow runs: nothing is ended (refuse), they end by themselves first (wait), or
            they are interrupted and continue with the next `up` (force).

    Raises:
        StoreError: Loops are in progress, and `ending` is refuse.
    """
    if ending == "refuse" and (runs := platform.loops(workspace)):
        raise StoreError(
            f"in progress: {', '.join(runs)}: `loopline down --wait` lets them end first, `loopline down --force` "
            "interrupts them, and the next `loopline up` continues them"
        )
    if ending == "wait" and platform.flow_runs(workspace):
        _let_end(workspace, note)
    platform.stop_worker(workspace)
    if PrefectServer(workspace).url():
        tell_prefect(workspace)
    try:
        for line in reap(workspace):
            note(line)
    except StoreError as error:
        note(f"what ended runs left is put right by the next `loopline up`: {error}")
    return platform.stop(workspace)


def tell_prefect(workspace: Workspace) -> None:
    """Let this process use the platform's Prefect server; call this before Prefect is imported.

    Raises:
        StoreError: There is no such server.
    """
    url = PrefectServer(workspace).api()
    if not url:
        raise StoreError("no Prefect server runs for this workspace: `loopline up` starts one")
    server_access.use(workspace, url)


def _let_end(workspace: Workspace, note: Callable[[str], None]) -> None:
    platform.pause(workspace, True)
    try:
        run_ids: list[str] = []
        while runs := platform.flow_runs(workspace):
            if runs != run_ids:
                note(f"waiting for {', '.join(runs)}")
            run_ids = runs
            time.sleep(POLL_S)
        platform.stop_worker(workspace)
    finally:
        platform.pause(workspace, False)
