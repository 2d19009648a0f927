"""A Postgres of a test's own."""

from __future__ import annotations

import atexit
import contextlib
import functools
import getpass
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest


def is_installed() -> bool:
    """Whether this machine has a Postgres server."""
    return bool(shutil.which("postgres") and shutil.which("initdb"))


def new_database(server: str, name: str) -> str:
    """Make an empty database; gives its address."""
    import psycopg

    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'create database "{name}"')
    return f"{server}/{name}"


def _user() -> str | None:
    """Postgres refuses to run as root: the account that its package makes, or nobody."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    pytest.skip("Postgres does not run as root, and there is no account to run it by")


class Server:
    """A Postgres that can be stopped and started again.

    Args:
        address: Its address, without a database.
        start: Starts it and waits for it; gives its process.
    """

    def __init__(self, address: str, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self.address = address
        self._begin = start
        self._process = start()

    def stop(self) -> None:
        """End it at once, and its connections with it; SIGTERM would wait for the clients to leave."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within the block it hangs: connections stay open, and nothing is answered."""
        family = [psutil.Process(self._process.pid)]
        family += family[0].children(recursive=True)
        for process in family:
            process.suspend()
        try:
            yield
        finally:
            for process in family:
                process.resume()

    def start(self) -> None:
        """Start it again."""
        self._process = self._begin()


@contextlib.contextmanager
def postgres(host: str = "127.0.0.1") -> Iterator[str]:
    """A Postgres of our own on a free port; gives the address without a database."""
    with postgres_server(host) as server:
        yield server.address


@contextlib.contextmanager
def postgres_server(host: str = "127.0.0.1") -> Iterator[Server]:
    """A Postgres of our own on a free port."""
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a socket's path must be short
    if user:
        shutil.chown(folder, user)
    with socket.socket() as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    data = folder / "data"
    subprocess.run(["cp", "-a", _template(user), data], check=True)  # with its owner
    command = [
        "postgres",
        "-D",
        data,
        "-p",
        str(port),
        "-c",
        f"listen_addresses={host}",
        "-c",
        "fsync=off",
        "-k",
        folder,
    ]

    def start() -> subprocess.Popen[bytes]:
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(command, user=user, stdout=log, stderr=log, cwd=folder)
        try:
            _wait(host, port, process)
        except BaseException:
            process.kill()
            raise
        return process

    try:
        server = Server(f"postgresql://loopline@{host}:{port}", start)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@functools.cache
def _template(user: str | None) -> Path:
    """A cluster that was made once in this process: making one takes .6 CPU-s, a copy of it a tenth."""
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if user:
        shutil.chown(folder, user)
    data = folder / "data"
    command = ["initdb", "-D", data, "-U", "loopline", "-A", "trust", "-N"]
    subprocess.run(command, check=True, user=user, capture_output=True, cwd=folder)
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write("host all all samenet trust\nhost all all 10.0.0.0/8 trust\n")
    return data


def _wait(host: str, port: int, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        try:
            psycopg.connect(f"postgresql://loopline@{host}:{port}/postgres").close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"Postgres did not come up as {getpass.getuser()}")
