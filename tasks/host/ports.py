"""The ports of the platform's services: the requested ones, else the last ones, else the usual ones, else any.

Several platforms may start at once, so that a port which is free when it is chosen is taken a moment later. A service
whose port was taken ends, and is started again at another one (`renewed`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from models.errors import StoreError, UsageError
from models.files import read_json, write_json
from tasks.host.locks import held

HIGHEST = 65535
LOOPBACK = "127.0.0.1"
BACKLOG = 128
"""Connections that wait while a server imports what it needs."""
LOCK_TIMEOUT_S = 10.0


def choose(memory: Path, usual: Mapping[str, int], requested: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
    """Return a free port for each service, stored in `memory`, and a note for each port that changed since last time.

    Args:
        memory: The file that stores the ports.
        usual: Each service's usual port.
        requested: Ports that a person requests, stored from then on; 0 deletes the request and takes any port but the
            usual one.

    Raises:
        UsageError: A requested port is invalid, is requested twice, or is for a service without a port.
        StoreError: A requested port is taken; the message names the program that has it.
    """
    memory_of_ports = read_json(memory)
    requested_ports = _wanted(usual, {**memory_of_ports.get("requested", {}), **requested})
    before, chosen, notes = memory_of_ports.get("ports", {}), {}, []
    for name in usual:
        if name in requested_ports:
            chosen[name] = _claim(name, requested_ports[name])
    for name in usual:
        if name not in requested_ports:
            default = None if requested.get(name) == 0 else usual[name]
            chosen[name] = any_free([before.get(name), default], chosen.values())
            if name in before and chosen[name] != before[name]:
                notes.append(f"{name}: port {before[name]} is taken by {holder(before[name])}; now at {chosen[name]}")
    write_json(memory, {"requested": requested_ports, "ports": chosen})
    return chosen, notes


def taken_ports(chosen: Mapping[str, int]) -> dict[str, int]:
    """Return the ports at which a program listens now."""
    return {name: port for name, port in chosen.items() if not _is_free(port)}


def renewed(memory: Path, name: str) -> int | None:
    """Return a service's stored port, or any free one, stored instead, if another program has taken it since.

    A port that a person requested stays. None: the service has no port.

    Raises:
        StoreError: The ports cannot be stored.
    """
    with held(memory.with_suffix(".lock"), lambda: f"{memory}: another service changes it: try again", LOCK_TIMEOUT_S):
        stored = read_json(memory)
        chosen, requested = stored.get("ports", {}), stored.get("requested", {})
        if name in chosen and name not in requested and not _is_free(chosen[name]):
            chosen[name] = any_free([], chosen.values())
            write_json(memory, {"requested": requested, "ports": chosen})
    port: int | None = chosen.get(name)
    return port


def listening(port: int, *, or_any: bool = False) -> socket.socket:
    """Return a socket that listens at a port of loopback.

    Args:
        port: The port.
        or_any: Listen at any free port if another program has this one.

    Raises:
        OSError: The port is taken.
    """
    try:
        return socket.create_server((LOOPBACK, port), backlog=BACKLOG)
    except OSError:
        if not or_any:
            raise
        return socket.create_server((LOOPBACK, 0), backlog=BACKLOG)


def listener(port: int) -> socket.socket:
    """Return the listening socket that this process has as its standard input, as from inetd, else a new one.

    Raises:
        OSError: The port is taken.
    """
    if not stat.S_ISSOCK(os.fstat(0).st_mode):
        return listening(port)
    return socket.socket(fileno=os.dup(0))


def holder(port: int) -> str:
    """Return the name of the program that listens at a port, as far as this user may see it."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            listening = connection.laddr.port if connection.laddr else None
            if connection.status == psutil.CONN_LISTEN and listening == port and connection.pid:
                process = psutil.Process(connection.pid)
                return f"{process.name()} (pid {process.pid})"
    return "another program"


def _wanted(usual: Mapping[str, int], requested: Mapping[str, int]) -> dict[str, int]:
    for name, port in requested.items():
        if name not in usual:
            raise UsageError(f"got a port for {name!r}, expected one of {', '.join(usual)}")
        if not 0 <= port <= HIGHEST:
            raise UsageError(f"got port {port} for {name}, expected 1 to {HIGHEST}, or 0 for any")
    ports = {name: port for name, port in requested.items() if port}
    if len(set(ports.values())) < len(ports):
        services = ", ".join(f"{name}={port}" for name, port in sorted(ports.items()))
        raise UsageError(f"got one port for two services ({services}): say another for one of them")
    return ports


def _claim(name: str, port: int) -> int:
    if not _is_free(port):
        raise StoreError(
            f"port {port}, wanted for {name}, is taken by {holder(port)}: end that, or say `--port {name}=NUMBER` "
            "(0: any but the usual one)"
        )
    return port


def any_free(candidates: Iterable[int | None], but: Iterable[int] = ()) -> int:
    """Return the first candidate that is free and not among `but`, else any free port."""
    used = set(but)
    fitting = (port for port in candidates if port and port not in used and _is_free(port))
    if port := next(fitting, None):
        return port
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like the servers: closed connections may linger
        probe.bind((LOOPBACK, port))
        return True
    return False
