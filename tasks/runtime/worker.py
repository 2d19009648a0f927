"""Prefect's process worker of a workspace: `python -m tasks.runtime.worker ROOT` waits for the server, then is it."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sys
import time
from pathlib import Path

from tasks.runtime.flow_runs import pass_over, take_up
from tasks.runtime.prefect_server import Server, is_healthy
from tasks.runtime.services import FRESH, elsewhere, folder
from tasks.runtime.workspace import Workspace

MOST_RUNS = 4  # flow runs at once: each is a process, and a loop keeps every core busy by itself
POLL_S = 0.2
POOL = "loopline"


def pool_of(workspace: Workspace) -> str:
    """The work pool: one a workspace, for a server elsewhere may know several."""
    if "prefect" not in elsewhere(workspace):
        return POOL
    mark = hashlib.sha256(f"{socket.gethostname()}:{workspace.root}".encode()).hexdigest()[:6]
    return f"{POOL}-{workspace.root.name}-{mark}"


def pool_environment(workspace: Workspace) -> dict[str, str]:
    """What a flow run of the pool needs to know, whoever starts the worker."""
    return {"LOOPLINE_HOME": str(workspace.root)}


def main() -> None:
    """Wait for Prefect's server, then become its worker."""
    workspace = Workspace(Path(sys.argv[1]))
    pool = pool_of(workspace)
    while True:
        url = Server(workspace).api()
        if url and is_healthy(url):
            break
        time.sleep(POLL_S)
    fresh = folder(workspace) / FRESH
    missed = pass_over(url, pool) if fresh.exists() else []
    fresh.unlink(missing_ok=True)
    for line in missed + take_up(url, pool):
        print(line, flush=True)  # noqa: T201 - the worker's log
    os.environ.update({**pool_environment(workspace), "PREFECT_API_URL": url})
    name = f"{socket.gethostname()}-{workspace.root.name}"
    # No --limit, the pool has one: a run that is resumed before its first process is gone would end such a worker
    # ("this borrower is already holding one of this CapacityLimiter's tokens").
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's `&` ignores it, and the worker ends SIGTERM by way of it
    arguments = ["--pool", pool, "--type", "process", "--name", name]
    os.execv(sys.executable, [sys.executable, "-m", "prefect", "worker", "start", *arguments])  # noqa: S606 - fixed


if __name__ == "__main__":
    main()
