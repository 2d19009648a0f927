"""The process of one service, which ends with supervisord: `python -m tasks.platform.service_main ROOT NAME`.

An environment variable marks the process and its children. The process first ends what an earlier process of the same
service left behind, and it dies with supervisord (Linux). Such leftovers are a server's own workers, which survive a
kill -9 of the server and keep its port, and the flow runs of a killed worker, which nobody monitors.

A service that starts on demand takes 3 MB until somebody connects: this process listens, and a bare Python waits with
the listening socket as standard input, which the module gets. The connections wait for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from models.parent_death import die_with
from tasks.host import ports
from tasks.host.processes import SERVICE
from tasks.host.workspace import Workspace
from tasks.platform.services import SERVICES
from tasks.prefect.flow_runs import FLOW_RUN

if TYPE_CHECKING:
    import psutil

GRACE_S = 5.0
WAIT = "import os, select, sys; select.select([0], [], []); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
"""Runs `python` with the arguments once somebody connects to the socket that is standard input."""
PID_FILE = "supervisord.pid"
"""A file in the platform's folder; supervisord writes it before it starts a service."""


def marked(workspace: Workspace, name: str | None = None) -> Iterator[psutil.Process]:
    """Yield other processes with the mark of this workspace's platform, or of one of its services."""
    import psutil

    for process in psutil.process_iter(["pid"]):
        with contextlib.suppress(psutil.Error, ValueError, OSError):
            mark = json.loads(process.environ().get(SERVICE, "{}"))
            ours = mark.get("workspace") == str(workspace.root) and name in (None, mark["service"])
            if ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def end(processes: list[psutil.Process], grace_s: float = GRACE_S) -> list[int]:
    """End processes and return their ids.

    Flow runs are killed at once: so they stay open in Prefect, and the next worker continues them.
    """
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill() if FLOW_RUN in process.environ() else process.terminate()
    _, alive = psutil.wait_procs(processes, grace_s)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, grace_s)
    return [process.pid for process in processes]


def main() -> None:
    """Replace this process by the service."""
    workspace, name = Workspace(Path(sys.argv[1])), sys.argv[2]
    die_with(int((workspace.platform / PID_FILE).read_text()), signal.SIGTERM)
    os.environ[SERVICE] = json.dumps({"workspace": str(workspace.root), "service": name})
    end(list(marked(workspace, name)))
    service = next(service for service in SERVICES if service.name == name)
    port = ports.renewed(workspace.platform / "ports.json", name)
    command = service.command(workspace, port)
    if service.is_on_demand and port is not None:
        with ports.listening(port) as listener:
            os.dup2(listener.fileno(), 0)
        command = ["-IS", "-c", WAIT, *command]
    os.execv(sys.executable, [sys.executable, *command])  # noqa: S606 - a command of the table


if __name__ == "__main__":
    main()
