"""The platform of a workspace: starts all services, waits until they are healthy, and ends every process."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any
from urllib.parse import quote

from models.errors import StoreError, UsageError
from models.files import write_text
from tasks.host import ports, processes, server_access, stores
from tasks.host.http_guard import overview_host
from tasks.host.locks import held
from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord, is_running, last_loop
from tasks.platform import services, supervision
from tasks.platform.service_main import end, marked
from tasks.platform.services import Service, ServiceState, services_of, supervisor
from tasks.platform.supervision import WORKER
from tasks.prefect.flow_runs import FLOW_RUN, ask
from tasks.prefect.prefect_server import PrefectServer, answers
from tasks.prefect.worker import FRESH, pool_environment, pool_of, worker_name

UP_TIMEOUT_S = 300.0  # for a busy machine: supervisord reports a failed service long before
DOWN_TIMEOUT_S = 90.0
LOCK_TIMEOUT_S = 180.0
POLL_S = 0.2
ANSWER_S = 2.0
LEAST_FREE_BYTES = 2 << 30
EARLY = ("prefect", WORKER)
"""Services that are healthy as soon as they answer. Others must have run for a while: another platform that starts at
the same time may have been faster at the port, and would answer in their place."""


def start(workspace: Workspace, requested: dict[str, int]) -> list[str]:
    """Start the services that do not run yet and return notes; `healthy` waits for their health checks.

    Args:
        workspace: The platform's workspace.
        requested: Ports that a person requests, by service.

    Raises:
        UsageError: The platform is up with other ports than the requested ones, or other machines would reach the
            overview page.
        StoreError: A port is taken, or supervisord did not start.
    """
    overview_host()
    with _alone(workspace):
        note = supervisor(workspace)
        named = server_access.elsewhere(workspace)
        ours = [service for service in services.wanted(workspace) if service.name not in named]
        if note:
            _refuse_other_ports(workspace, requested)
            return _start_again(note, {service.name for service in ours})
        end(list(marked(workspace)))  # left by a killed supervisord
        server, usual = PrefectServer(workspace), {service.name: service.port for service in ours if service.port}
        if server.state() and not server.is_leased():
            server.stop()
        if server.state():  # a running loop's server: the platform uses it as it is
            usual.pop("prefect", None)
        chosen, notes = ports.choose(workspace.platform / "ports.json", usual, requested)
        if "prefect" in chosen:
            server.want_port(chosen["prefect"])
        server_access.make_secret(workspace)
        write_text(workspace.platform / FRESH, "")
        environ = {**processes.unmarked(os.environ), **stores.environment(workspace), **pool_environment(workspace)}
        supervision.start(workspace, workspace.platform, [service.name for service in ours], environ)
        return notes


def healthy(workspace: Workspace) -> Iterator[ServiceState]:
    """Yield each service as soon as it is healthy, until all are.

    Raises:
        StoreError: A service is not healthy in time, or has failed; the message names its log.
    """
    waiting = {service.name: service for service in services.wanted(workspace)}
    deadline = time.monotonic() + UP_TIMEOUT_S
    while waiting:
        if supervisor(workspace) is None:
            raise StoreError(f"supervisord is gone: see {workspace.platform}; `loopline up` starts it again")
        for state in services_of(workspace):
            service = waiting.get(state.name)
            if service and (state.state == "elsewhere" or is_healthy(workspace, service, state)):
                del waiting[state.name]
                yield state
                deadline = time.monotonic() + UP_TIMEOUT_S  # deploying many projects took some of it
            elif service and (state.state == "failed" or time.monotonic() > deadline):
                raise StoreError(_trouble(workspace, state))
        time.sleep(POLL_S)


def is_healthy(workspace: Workspace, service: Service, state: ServiceState) -> bool:
    """Return whether a service passes its health check; for a worker, whether it sent a heartbeat since its start."""
    if state.state != "running" and (state.state != "starting" or service.name not in EARLY):
        return False
    if service.health:
        return state.url is not None and answers(f"{state.url}{service.health}", ANSWER_S)
    if service.name == WORKER:
        return _is_heard_of(workspace, state.since or 0.0)
    return state.state == "running"


def stop_worker(workspace: Workspace) -> None:
    """End the worker and its flow runs, before the Prefect server that they report to; there it is offline at once."""
    note = supervisor(workspace)
    if note:
        with contextlib.suppress(Exception), supervision.connected(note["socket"], DOWN_TIMEOUT_S) as supervised:
            supervised.stopProcess(WORKER)
    end(list(marked(workspace, WORKER)))
    if api := PrefectServer(workspace).api():
        with contextlib.suppress(StoreError):  # its heartbeats end anyway
            path = f"work_pools/{pool_of(workspace)}/workers/{quote(worker_name(workspace))}"
            ask(api, path, None, "DELETE", timeout_s=ANSWER_S)


def stop(workspace: Workspace) -> bool:
    """End supervisord and every process of the platform; return whether there was any."""
    with _alone(workspace):
        note = supervisor(workspace)
        if note:
            _shut_down(note)
        ended = end(list(marked(workspace)))
        (workspace.platform / "supervisor.json").unlink(missing_ok=True)
        server = PrefectServer(workspace)
        if not server.is_leased():  # a loop from a command line may hold a lease; then the server ends after the loop
            server.stop()
        return bool(note or ended)


def flow_runs(workspace: Workspace) -> list[str]:
    """Return the names of the worker's current flow runs: loop ids, or Prefect's ids for other runs."""
    flow_run_pids: dict[str, set[int]] = {}
    for process in marked(workspace, WORKER):
        with contextlib.suppress(Exception):
            run = process.environ().get(FLOW_RUN)
            if run:
                flow_run_pids.setdefault(run, set()).add(process.pid)
    loops = {loop.process["pid"]: loop.loop_id for loop in _running_loops(workspace)}
    return [
        next((loops[pid] for pid in pids if pid in loops), f"flow run {run}") for run, pids in flow_run_pids.items()
    ]


def loops(workspace: Workspace) -> list[str]:
    """Return the ids of loops among the current flow runs, which a person must agree to interrupt.

    Raises:
        StoreError: The state database cannot be used.
    """
    try:
        running = {loop.loop_id for loop in _running_loops(workspace)}
    except StoreError as error:
        raise StoreError(f"{error}: `loopline down --force` ends the platform without it") from error
    return [name for name in flow_runs(workspace) if name in running]


def pause(workspace: Workspace, paused: bool) -> None:
    """Pause the work pool, so that it starts no runs, or resume it.

    Raises:
        StoreError: Prefect's server does not answer.
    """
    ask(str(PrefectServer(workspace).api()), f"work_pools/{pool_of(workspace)}", {"is_paused": paused}, "PATCH")


def low_disk(workspace: Workspace) -> str | None:
    """Return a warning if the disk is nearly full, else None."""
    free = shutil.disk_usage(workspace.state if workspace.state.exists() else workspace.root).free
    if free >= LEAST_FREE_BYTES:
        return None
    return f"only {free / 1e9:.1f} GB free under {workspace.root}: free some space before loops and stores stop for it"


def _alone(workspace: Workspace) -> AbstractContextManager[None]:
    """Return the lock that allows one `up` or `down` at a time."""
    workspace.make()
    workspace.platform.mkdir(parents=True, exist_ok=True)
    busy = "another `loopline up` or `down` of this workspace is under way: wait for it"
    return held(workspace.locks / "platform.lock", lambda: busy, LOCK_TIMEOUT_S)


def _refuse_other_ports(workspace: Workspace, requested: dict[str, int]) -> None:
    now, usual = services.ports(workspace), {service.name: service.port for service in services.wanted(workspace)}
    unchanged = [name for name, port in requested.items() if now.get(name) == port]
    unchanged += [name for name, port in requested.items() if port == 0 and now.get(name) != usual.get(name)]
    changed = [f"{name}={now.get(name)}" for name in requested if name not in unchanged]
    if changed:
        raise UsageError(
            f"the platform is up with {', '.join(changed)}: `loopline down` first, then up with other ports"
        )


def _start_again(note: dict[str, Any], names: set[str]) -> list[str]:
    """Start the services that failed or stopped."""
    messages = []
    try:
        with supervision.connected(note["socket"]) as supervised:
            processes = supervised.getAllProcessInfo()
            if {process["name"] for process in processes} != names:
                raise UsageError("the platform is up with other services than are wanted now: `loopline down`, then up")
            for process in processes:
                if process["statename"] in ("FATAL", "EXITED", "STOPPED"):
                    supervision.start_service(supervised, process["name"])
                    messages.append(f"{process['name']} was {services.STATES[process['statename']]}: started again")
    except OSError as error:
        pid = note["process"]["pid"]
        raise StoreError(f"supervisord (pid {pid}) does not answer ({error}): `loopline down`, then up") from error
    return messages


def _shut_down(note: dict[str, Any]) -> None:
    with contextlib.suppress(Exception), supervision.connected(note["socket"]) as supervised:
        supervised.shutdown()
    deadline = time.monotonic() + DOWN_TIMEOUT_S
    while services.is_up(note) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    if processes.is_alive_here(note["process"]):
        os.kill(note["process"]["pid"], 9)


def _running_loops(workspace: Workspace) -> Iterator[LoopRecord]:
    for state in (workspace.state / "projects").glob("*"):
        loop = last_loop(state)
        if loop and is_running(state, loop):
            yield loop


def _is_heard_of(workspace: Workspace, since: float) -> bool:
    api = PrefectServer(workspace).api()
    if not api:
        return False
    with contextlib.suppress(StoreError):
        heard = ask(api, f"work_pools/{pool_of(workspace)}/workers/filter", {})
        beats = [worker["last_heartbeat_time"] for worker in heard if worker["last_heartbeat_time"]]
        return any(datetime.fromisoformat(beat).timestamp() >= since for beat in beats)
    return False


def _trouble(workspace: Workspace, state: ServiceState) -> str:
    log = workspace.platform / "logs" / f"{state.name}.log"
    lines: Sequence[str] = log.read_text(errors="replace").strip().splitlines() if log.exists() else ()
    last = f": {lines[-1][:300]}" if lines else ""
    return f"{state.name} is {state.state}, not healthy{last}: see {log}; `loopline down` ends the others"
