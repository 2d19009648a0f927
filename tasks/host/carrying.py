"""Who carries rows of the state database to another tool: one process at a time for each name.

On this machine a lock decides, between machines a lease. No lease stops what a paused process sets in the other tool:
so it records what it carried only while it has the lease, and the next process carries the same rows once more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tasks.host import database
from tasks.host.leases import Lease, leased
from tasks.host.locks import held
from tasks.host.workspace import Workspace

WAIT_S = 20.0
"""How long a process waits for another one that carries the same rows."""


@contextlib.contextmanager
def carrying(workspace: Workspace, tool: str, project: str, timeout_s: float = WAIT_S) -> Iterator[Lease | None]:
    """Be the only process that carries a project's rows to a tool; yield the lease, None without a shared database.

    Raises:
        StoreError: Another process carries them, or the database cannot be used.
    """
    name = f"{tool}:{project}"
    with contextlib.ExitStack() as stack:
        path = workspace.locks / f"{tool}-{project}.lock"
        stack.enter_context(held(path, lambda: f"{name}: another process carries its rows", timeout_s))
        yield stack.enter_context(leased(workspace.state, name, timeout_s)) if database.is_shared() else None
