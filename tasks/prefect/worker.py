"""Prefect's worker of a workspace: `python -m tasks.prefect.worker ROOT` waits for the server, then starts."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sys
import time
from pathlib import Path

from tasks.host import database, server_access
from tasks.host.server_access import elsewhere
from tasks.host.workspace import Workspace
from tasks.prefect.flow_runs import online_workers, pass_over, pool_type, take_up
from tasks.prefect.prefect_server import PrefectServer, is_healthy

MOST_RUNS = 4  # concurrent flow runs: each is a process, and a single loop uses all cores
POLL_S = 0.2
POOL = "loopline"
FRESH = "fresh"  # a file that exists from `up` until the worker has started


def pool_of(workspace: Workspace) -> str:
    """Return the name of the work pool: one per workspace, because a remote server may have several workspaces.

    Machines that share a state database are one workspace: their workers serve one pool. They must name the database by
    the same address.
    """
    if "prefect" not in elsewhere(workspace):
        return POOL
    if database.is_shared():
        return f"{POOL}-{_mark(database.shown(database.address(workspace.state)))}"
    return f"{POOL}-{workspace.root.name}-{_mark(f'{socket.gethostname()}:{workspace.root}')}"


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def worker_name(workspace: Workspace) -> str:
    """Return the name by which Prefect knows this machine's worker."""
    return f"{socket.gethostname()}-{workspace.root.name}"


def pool_environment(workspace: Workspace) -> dict[str, str]:
    """Return the environment variables that every process of the pool needs, on whatever machine it runs."""
    return {} if database.is_shared() else _home(workspace)


def _home(workspace: Workspace) -> dict[str, str]:
    return {"LOOPLINE_HOME": str(workspace.root)}


def main() -> None:
    """Run the worker. It imports Prefect, which takes a second or two, while the server starts."""
    from tasks.prefect import pods
    from tasks.ranks.places import find_pool_place

    workspace = Workspace(Path(sys.argv[1]))
    environment, pool, url = dict(os.environ), pool_of(workspace), _address(workspace)
    os.environ.update(_home(workspace))
    server_access.use(workspace, url)
    place = find_pool_place(workspace)
    if place:
        pods.require_worker()
        os.environ.update(pods.worker_environment(place))
    import prefect.workers.process  # noqa: F401
    from prefect.cli import app

    while not is_healthy(url):
        if PrefectServer(workspace).url() not in (None, url) and "PREFECT_API_URL" not in environment:
            os.execve(sys.executable, sys.orig_argv, environment)  # noqa: S606 - restart: the address has changed
        time.sleep(POLL_S)
    kind = "kubernetes" if place else "process"
    _wait_for_type(url, pool, kind)
    fresh = workspace.platform / FRESH
    name = worker_name(workspace)
    other_workers = online_workers(url, pool) - {name}
    missed = pass_over(url, pool) if fresh.exists() and not other_workers else []
    fresh.unlink(missing_ok=True)
    for line in missed + take_up(url, pool, other_workers, pods.runs_in_pods(place) if place else None):
        print(line, flush=True)  # noqa: T201 - the worker's log
    # No --limit, because the pool has one: with it, a run that is resumed before its first process has ended would end
    # the worker ("this borrower is already holding one of this CapacityLimiter's tokens").
    # A shell's `&` makes SIGINT ignored, and Prefect's worker needs SIGINT to handle a SIGTERM.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["prefect", "worker", "start", "--pool", pool, "--type", kind, "--name", name]
    app()


def _wait_for_type(api: str, pool: str, kind: str) -> None:
    """Wait while the pool has another type than this worker, whose runs it would start wrongly."""
    is_told = False
    while (type_now := pool_type(api, pool)) not in (None, kind):
        if not is_told:
            text = f"work pool {pool}: its type is {type_now}, expected {kind}: waiting for `loopline up` to change it"
            print(text, flush=True)  # noqa: T201 - the worker's log
            is_told = True
        time.sleep(POLL_S)


def _address(workspace: Workspace) -> str:
    while not (url := PrefectServer(workspace).api()):
        time.sleep(POLL_S)
    return url


if __name__ == "__main__":
    main()
