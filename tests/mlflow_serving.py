"""MLflow's server of a workspace, for as long as a test needs it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator

import httpx

from tasks.host.ports import any_free
from tasks.host.workspace import Workspace
from tasks.mlflow import embedded_store
from tests import warm

START_TIMEOUT_S = 60.0


@contextlib.contextmanager
def serving(workspace: Workspace) -> Iterator[tuple[str, warm.Started]]:
    """Serve on loopback while in the block; yield the address and the process."""
    embedded_store.initialise(workspace)
    port = any_free([])
    url, log = f"http://127.0.0.1:{port}", workspace.state / "mlflow" / "server.log"
    command = ["-m", "tasks.mlflow.mlflow_server", str(workspace.root), "--port", str(port)]
    with log.open("ab") as out:
        process = warm.start_python(command, dict(os.environ), warm.ROOT, out)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(url):
            assert time.monotonic() < deadline, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield url, process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/health", timeout=5).is_success
    return False
