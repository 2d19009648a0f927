"""MLflow's server over the workspace's store: its page, and the REST API that tests and other machines use."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from models.errors import StoreError
from tasks.runtime import stores
from tasks.runtime.prefect_server import die_with_parent
from tasks.runtime.workspace import Workspace

START_TIMEOUT_S = 60.0
POLL_S = 0.2


@contextlib.contextmanager
def serving(workspace: Workspace, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Serve on loopback while in the block; gives the address and the process.

    Raises:
        StoreError: The port is taken, or the server did not come up; names its log.
    """
    stores.initialise_mlflow(workspace)
    port = _claim(port)
    log = workspace.state / "mlflow" / "server.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            _command(workspace, port),
            stdout=out,
            stderr=out,
            env=_environment(workspace),
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, process, str(log))
        yield url, process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


def _command(workspace: Workspace, port: int) -> list[str]:
    listens = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    artifacts = ["--artifacts-destination", str(stores.artifact_root(workspace))]
    return [sys.executable, "-m", "mlflow", "server", *listens, *artifacts]


def _environment(workspace: Workspace) -> dict[str, str]:
    """The store is named here and not among the arguments: a database's address holds its password."""
    ours = stores.environment(workspace)
    store = {"MLFLOW_BACKEND_STORE_URI": ours["MLFLOW_TRACKING_URI"], "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return {**os.environ, **ours, **store}


def _claim(port: int) -> int:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise StoreError(f"port {port} on 127.0.0.1 is taken: choose another, or 0 for any") from error
        return int(probe.getsockname()[1])


def _wait(url: str, process: subprocess.Popen[bytes], log: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{url}/health", timeout=5).close()  # noqa: S310 - our own server
            return
        time.sleep(POLL_S)
    raise StoreError(f"MLflow's server at {url} did not come up: see {log}")


def main() -> None:
    """Become the server of a workspace: `python -m tasks.runtime.mlflow_server ROOT --port 5000`."""
    workspace, port = Workspace(Path(sys.argv[1])), int(sys.argv[3])
    stores.configure(workspace)
    stores.initialise_mlflow(workspace)
    os.execve(sys.executable, _command(workspace, port), _environment(workspace))  # noqa: S606 - a fixed command


if __name__ == "__main__":
    main()
