"""What all workers of a test run share: folders that one process makes, such as an empty store.

`begin` makes the stores and the Prefect server on the core that is idle while the warm parent imports on the other one
(`tests/warm.py`): the first tests of each worker waited for them.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import filelock

from tasks.host.workspace import Workspace
from tests.environment import forget_the_user

ROOT = Path(__file__).parents[1]
PREFECT = "prefect"
"""The folder of the Prefect server of all tests."""


def made_once(shared: Path, name: str, make: Callable[[Path], object] | None = None) -> Path:
    """The folder `name` of a test run's shared ones, which the first process that asks for it makes."""
    folder, made = shared / name, shared / f"{name}.made"
    with filelock.FileLock(shared / f"{name}.lock"):
        if make and not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            made.touch()
    return folder


def empty_store(once: Callable[..., Path]) -> Path:
    """An initialised, empty tracking store: its migration takes seconds, a copy of it none."""
    from tasks.mlflow import embedded_store

    def make(folder: Path) -> None:
        workspace = Workspace(folder)
        workspace.make()
        uri = f"sqlite:///{workspace.state / 'mlflow' / 'mlflow.db'}"
        embedded_store.initialise(workspace, {"MLFLOW_TRACKING_URI": uri})

    return Workspace(once("store", make)).state / "mlflow"


def begin(shared: Path) -> Callable[[], object]:
    """Make them in a process of its own; return what ends it, once the workers are gone."""
    shared.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.shared_stores", str(shared)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT).communicate


def _main() -> None:
    forget_the_user()
    from tests.running import prefect_server

    once = functools.partial(made_once, Path(sys.argv[1]))
    with prefect_server(once(PREFECT)):
        empty_store(once)
        sys.stdin.read()


if __name__ == "__main__":
    _main()
