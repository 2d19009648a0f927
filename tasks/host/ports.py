"""The ports of the platform's services: the requested ones, else the last ones, else the usual ones, else any."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from models.errors import StoreError, UsageError
from models.files import read_json, write_json

HIGHEST = 65535


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
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like the servers: closed connections may linger
        probe.bind(("127.0.0.1", port))
        return True
    return False
