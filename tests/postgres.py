"""A Postgres of a test's own."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

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


@contextlib.contextmanager
def postgres(host: str = "127.0.0.1") -> Iterator[str]:
    """A Postgres of our own on a free port; gives the address without a database."""
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a socket's path must be short
    if user:
        shutil.chown(folder, user)
    with socket.socket() as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    data = folder / "data"
    subprocess.run(
        ["initdb", "-D", data, "-U", "loopline", "-A", "trust", "-N"],
        check=True,
        user=user,
        capture_output=True,
        cwd=folder,
    )
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write("host all all samenet trust\nhost all all 10.0.0.0/8 trust\n")
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
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, user=user, stdout=log, stderr=log, cwd=folder)
    try:
        _wait(host, port, process)
        yield f"postgresql://loopline@{host}:{port}"
    finally:
        process.send_signal(signal.SIGINT)  # at once; SIGTERM waits for the clients to leave
        process.wait(30)
        shutil.rmtree(folder)


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
