"""nginx with the configuration that ships, before servers of a test, on ports of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tasks.host import ports

CONFIGURATION = Path(__file__).parents[1] / "infra" / "nginx" / "loopline.conf"
SEARCHED = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
LISTENS = {"models": 8000, "tls": 8443, "grpc": 8001, "overview": 4380}
SERVERS = {"models": 8010, "grpc": 8011, "overview": 4300}


@dataclass(frozen=True)
class Nginx:
    """A running nginx; `ports` by the names of LISTENS."""

    ports: Mapping[str, int]
    process: psutil.Process

    @property
    def memory_mb(self) -> float:
        """Resident memory of all its processes, shared pages counted in each."""
        family = [self.process, *self.process.children()]
        return sum(process.memory_info().rss for process in family) / 1e6

    @property
    def num_clients(self) -> int:
        """Connections of clients of models that nginx holds; not those that the kernel has yet to end."""
        port = self.ports["models"]
        connections = [
            connection for process in self.process.children() for connection in process.net_connections("tcp")
        ]
        return sum(connection.laddr.port == port and connection.raddr != () for connection in connections)


@contextlib.contextmanager
def nginx(folder: Path, servers: Mapping[str, int], changes: Mapping[str, str] | None = None) -> Iterator[Nginx]:
    """nginx before `servers`, ports by the names of SERVERS; the test is skipped where nginx is not installed.

    Args:
        folder: For its files; certificates lie here too.
        servers: The ports that it asks.
        changes: Further replacements in the configuration; each text must be in it.
    """
    program = shutil.which("nginx", path=SEARCHED)
    if program is None:
        pytest.skip("nginx is not installed: `apt-get install nginx-light`")
    free: dict[str, int] = {}
    for name in LISTENS:
        free[name] = ports.any_free([], free.values())
    listens = {f"listen {port}": f"listen 127.0.0.1:{free[name]}" for name, port in LISTENS.items()}
    upstreams = {f"server 127.0.0.1:{SERVERS[name]};": f"server 127.0.0.1:{port};" for name, port in servers.items()}
    text = CONFIGURATION.read_text()
    for old, new in {**listens, **upstreams, **(changes or {})}.items():
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "nginx.conf"
    path.write_text(text)
    with (folder / "nginx.log").open("wb") as log:
        user = ["-g", "user root;"] if os.getuid() == 0 else []  # another user cannot enter the folder of the test
        process = psutil.Popen([program, "-e", "stderr", "-p", str(folder), "-c", str(path), *user], stderr=log)
        try:
            _wait_for(free["models"], process, folder / "nginx.log")
            yield Nginx(free, process)
        finally:
            process.terminate()
            process.wait(30)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise AssertionError(log.read_text())
