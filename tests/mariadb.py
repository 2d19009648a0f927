"""A MariaDB of a test's own."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pymysql

from tests.certificates import certificate


def is_installed() -> bool:
    """Whether this machine has a MariaDB server, and its account."""
    return bool(shutil.which("mariadbd") and shutil.which("mariadb-install-db"))


@contextlib.contextmanager
def mariadb() -> Iterator[str]:
    """A MariaDB of our own on a free port, with TLS; gives the address of its database `shop`, without a password."""
    folder = Path(tempfile.mkdtemp(prefix="my", dir="/tmp"))  # a socket's path must be short
    certificate(folder)
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, "mysql")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = f"--datadir={folder}/data"
    start = ["--no-defaults", data, "--user=mysql"]
    install = ["mariadb-install-db", *start, "--auth-root-authentication-method=normal", "--skip-test-db"]
    process = None
    try:
        subprocess.run(install, check=True, capture_output=True)
        command = ["mariadbd", *start, f"--socket={folder}/s", f"--port={port}", "--bind-address=127.0.0.1"]
        command += [f"--ssl-cert={folder}/cert.pem", f"--ssl-key={folder}/key.pem"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([*command, "--skip-name-resolve"], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(pymysql.OperationalError):
                with pymysql.connect(host="127.0.0.1", port=port, user="root") as connection:
                    connection.cursor().execute("create database shop")
                break
            time.sleep(0.1)
        yield f"mysql://root@127.0.0.1:{port}/shop"
    finally:
        if process is not None:
            process.kill()
            process.wait(30)
        shutil.rmtree(folder)
