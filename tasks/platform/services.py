"""The services of the platform: their table, and the state of each service.

A new service is a line in SERVICES. supervisord starts it as `python -m MODULE ARGUMENTS`, in the workspace's
environment; `{root}` stands for the workspace and `{port}` for the service's port.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from models.errors import LooplineError
from models.files import read_json
from models.launch import launched
from tasks.host import processes
from tasks.host.server_access import elsewhere
from tasks.host.workspace import Workspace
from tasks.prefect.prefect_server import PrefectServer

State = Literal["running", "starting", "backing off", "failed", "stopped", "elsewhere", "unknown"]
STATES: dict[str, State] = {
    "RUNNING": "running",
    "STARTING": "starting",
    "BACKOFF": "backing off",
    "FATAL": "failed",
    "EXITED": "stopped",
    "STOPPING": "stopped",
    "STOPPED": "stopped",
}
EXITED = re.compile(r" exited: (\S+) \((.*)\)$")


@dataclass(frozen=True)
class Service:
    """A process of the platform; a server also has a port, and a health path, which returns 200 when it is up."""

    name: str
    module: str
    arguments: tuple[str, ...] = ("{root}",)
    health: str | None = None
    port: int | None = None
    title: str = ""
    is_optional: bool = False
    """Whether the service starts only if a project's spec requires it."""
    is_on_demand: bool = False
    """Whether its module starts at the first connection to its port, which waits: most days there is none."""

    def command(self, workspace: Workspace, port: int | None) -> list[str]:
        """Return the arguments of `python`."""
        return launched(self.module, *(text.format(root=workspace.root, port=port) for text in self.arguments))


SERVED = ("{root}", "--port", "{port}")
SERVICES = (
    Service(
        "prefect",
        "tasks.prefect.prefect_server",
        ("{root}", "--for-good"),
        health="/api/health",
        port=4200,
        title="Prefect",
    ),
    Service("mlflow", "tasks.mlflow.mlflow_server", SERVED, port=5000, title="MLflow", is_on_demand=True),
    Service("overview", "tasks.dashboard", SERVED, health="/health", port=4300, title="Overview"),
    Service("optuna", "tasks.tools.optuna_page", SERVED, port=4301, title="Optuna", is_on_demand=True),
    Service(
        "serve",
        "tasks.serve",
        (*SERVED, "--needs-token"),
        health="/v2/health/live",
        port=8000,
        title="Served models",
        is_optional=True,
    ),
    Service("worker", "tasks.prefect.worker", title="Worker"),
    Service("compactor", "tasks.operations.compact", title="Compactor"),
)


@dataclass(frozen=True)
class ServiceState:
    """The state of a service; `restarts` counts restarts since `up`, `detail` describes its last problem."""

    name: str
    state: State
    url: str | None = None
    pid: int | None = None
    since: float | None = None
    restarts: int = 0
    detail: str = ""


def wanted(workspace: Workspace) -> list[Service]:
    """Return the services that this workspace needs."""
    return [service for service in SERVICES if not service.is_optional or projects_to_serve(workspace)]


def projects_to_serve(workspace: Workspace) -> list[str]:
    """Return the projects whose specs have `serve: {up: true}`; unreadable specs are ignored."""
    names = []
    for project in workspace.projects():
        with contextlib.suppress(LooplineError):
            spec = project.spec()
            names += [spec.name] if spec.serve.up else []
    return names


def ports(workspace: Workspace) -> dict[str, int]:
    """Return the current or last ports of the services."""
    return dict(read_json(workspace.platform / "ports.json").get("ports", {}))


def usual_address(workspace: Workspace, name: str) -> str:
    """Return where a service was last, or by default is, served on this machine."""
    port = next(service.port for service in SERVICES if service.name == name)
    return f"http://127.0.0.1:{ports(workspace).get(name, port)}"


def loop_address(workspace: Workspace, loop_id: str) -> str:
    """Return the address of a loop's page, where it was last or by default is served."""
    return f"{usual_address(workspace, 'overview')}/loops/{quote(loop_id, safe='')}"


def supervisor(workspace: Workspace) -> dict[str, Any] | None:
    """Return the note of the running supervisord, with its process and socket, or None."""
    note = read_json(workspace.platform / "supervisor.json")
    return note if note and is_up(note) else None


def is_up(note: dict[str, Any]) -> bool:
    """Return whether a note's supervisord is alive: by its pid, or by its socket if the pid is of another host."""
    return processes.is_alive(note["process"]) if processes.is_here(note["process"]) else _processes(note) is not None


def services_of(workspace: Workspace) -> list[ServiceState]:
    """Return the state of each service, from supervisord's local socket; takes one second if there is no response."""
    note, named = supervisor(workspace), elsewhere(workspace)
    processes = _processes(note) if note else {}
    exits = _exits(workspace.platform / "supervisord.log") if note else {}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports(workspace).items()}
    prefect = _page("prefect", PrefectServer(workspace).url() or "") or None
    states = []
    for service in SERVICES:
        if service.is_optional and service.name not in (processes or ()):
            continue
        if service.name in named:
            states.append(ServiceState(service.name, "elsewhere", _page(service.name, named[service.name])))
        elif processes is None:
            states.append(ServiceState(service.name, "unknown", detail="supervisord does not answer"))
        elif service.name in processes:
            url = prefect if service.name == "prefect" else urls.get(service.name)
            states.append(_state(service.name, processes[service.name], url, exits.get(service.name, [])))
        else:  # while the platform is down, a loop may have its own Prefect server
            url = prefect if service.name == "prefect" else None
            states.append(ServiceState(service.name, "running" if url else "stopped", url))
    return states


def _state(name: str, process: dict[str, Any], url: str | None, exits: list[str]) -> ServiceState:
    state = STATES.get(process["statename"], "unknown")
    up = state in ("running", "starting")
    last = process.get("spawnerr") or (exits[-1] if exits else "")
    detail = f"started again after: {last}" if last and state == "running" else last
    return ServiceState(
        name,
        state,
        url if up else None,
        process["pid"] or None,
        float(process["start"]) if up else None,
        len(exits),
        detail,
    )


def _page(name: str, url: str) -> str:
    return url.rstrip("/").removesuffix("/api") if name == "prefect" else url


def _processes(note: dict[str, Any]) -> dict[str, dict[str, Any]] | None:
    from tasks.platform.supervision import connected

    with contextlib.suppress(OSError), connected(note["socket"]) as supervised:
        return {process["name"]: process for process in supervised.getAllProcessInfo()}
    return None


def _exits(log: Path) -> dict[str, list[str]]:
    """Return each service's unexpected exits as texts, oldest first, such as `terminated by SIGKILL`."""
    exits: dict[str, list[str]] = {}
    with contextlib.suppress(OSError):
        for line in log.read_text(errors="replace").splitlines():
            exited = EXITED.search(line)
            if exited:
                exits.setdefault(exited[1], []).append(exited[2].partition(";")[0])
    return exits
