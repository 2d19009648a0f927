"""MLflow's server of a workspace, as the platform runs it, for the length of a block."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tasks.host.ports import any_free
from tasks.host.workspace import Workspace
from tasks.mlflow.mlflow_server import HEALTH
from tasks.prefect.prefect_server import answers
from tests import warm

START_TIMEOUT_S = 60.0


@contextlib.contextmanager
def serving(workspace: Workspace) -> Iterator[tuple[str, warm.Started]]:
    """Serve on loopback at any free port while in the block; yield the address and the process."""
    port, log = any_free([]), workspace.root / "mlflow-server.log"
    command = ["-m", "tasks.mlflow.mlflow_server", str(workspace.root), "--port", str(port)]
    with log.open("ab") as out:
        process = warm.start_python(command, dict(os.environ), Path(__file__).parents[1], out)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(f"http://127.0.0.1:{port}{HEALTH}"):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
