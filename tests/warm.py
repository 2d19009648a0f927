"""A fork server for the command line in tests: what `loopline run` imports in six seconds is imported once.

Each command is a process of its own, with its own environment, folder, files and signals; only the imports are shared.
Loopline's own modules, and Prefect's, which read the environment as they are imported, are left to the command.
What a cold start alone can show (`PYTHON...` variables, the locale, which modules are imported) is started cold.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
from pathlib import Path

from models.training.nursery import receive, send

ROOT = Path(__file__).parents[1]
PRELOAD = (
    "great_expectations",
    "mlflow.pyfunc",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.store.model_registry.sqlalchemy_store",
    "optuna",
    "pyarrow.parquet",
    "pandas",
    "scipy.stats",
    "matplotlib.pyplot",
    "onnx",
    # Prefect's own needs.
    "fastapi",
    "httpx",
    "httpcore",
    "alembic.command",
    "pydantic_settings",
    "griffe",
    "pendulum",
    "pathspec",
    "coolname",
    "opentelemetry.trace",
    "websockets",
    # Ours that read nothing of the environment.
    "models.spec",
    "models.steps",
    "models.retrain.schedule",
)
_LOST = -signal.SIGKILL  # a command dies with its server
_CODE = struct.Struct("<i")
_PR_SET_PDEATHSIG = 1


class Process:
    """A command that the server forked: as much of `subprocess.Popen` as the tests use."""

    def __init__(self, pid: int, exit_code: int) -> None:
        self.pid, self.returncode = pid, None
        self._exit_code: int | None = exit_code

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("loopline", timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _look(self, timeout: float | None) -> int | None:
        if self._exit_code is not None and select.select([self._exit_code], [], [], timeout)[0]:
            content = os.read(self._exit_code, _CODE.size)
            self.returncode = _CODE.unpack(content)[0] if content else _LOST
            os.close(self._exit_code)
            self._exit_code = None
        return self.returncode

    def __del__(self) -> None:
        if self._exit_code is not None:
            os.close(self._exit_code)


class Server:
    """The warm parent of this test process's commands."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        self._folder = tempfile.TemporaryDirectory(prefix="loopline-warm-")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, "MPLCONFIGDIR": self._folder.name},
                pass_fds=[theirs.fileno()],
            )
        self._socket = ours
        atexit.register(self.close)

    def start(
        self, program: Path, arguments: tuple[str, ...], environ: dict[str, str], cwd: Path, files: tuple[int, int, int]
    ) -> Process:
        """A process that calls the program with these arguments; `files` are its input, output and error."""
        mine, theirs = os.pipe()
        try:
            with self._lock:
                send(self._socket, (str(program), arguments, environ, str(cwd)), (*files, theirs))
                pid, _ = receive(self._socket)
        finally:
            os.close(theirs)
        return Process(pid, mine)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._folder.cleanup()


@functools.cache
def server() -> Server:
    """The server of this test process, started at first use."""
    return Server()


def may_share_imports(environ: dict[str, str]) -> bool:
    """Whether nothing in the environment is read by the interpreter itself as it starts."""
    names = {name for name in {*environ, *os.environ} if name.startswith(("PYTHON", "LC_", "LANG"))}
    return all(environ.get(name) == os.environ.get(name) for name in names)


def _serve(caller: socket.socket, parent: int) -> None:
    """Fork a child for each request and tell its exit code, until the caller is gone; returns in the children alone."""
    waking, woken = os.pipe()
    os.set_blocking(waking, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    open_: dict[int, int] = {}
    while os.getppid() == parent:
        ready, _, _ = select.select([caller, waking], [], [], 1)
        with contextlib.suppress(BlockingIOError):
            os.read(waking, 4096)
        _reap(open_)
        if caller not in ready:
            continue
        try:
            request, descriptors = receive(caller)
        except (EOFError, ConnectionError):
            break
        server_pid, pid = os.getpid(), os.fork()
        if pid == 0:
            caller.close()
            for descriptor in (waking, woken, *open_.values()):
                os.close(descriptor)
            _become(server_pid, request, descriptors)
            return
        *files, open_[pid] = descriptors
        for descriptor in files:
            os.close(descriptor)
        send(caller, pid)
    os._exit(0)


def _reap(open_: dict[int, int]) -> None:
    for pid in list(open_):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with contextlib.suppress(BrokenPipeError):
                os.write(open_[pid], _CODE.pack(os.waitstatus_to_exitcode(status)))
            os.close(open_.pop(pid))


def _become(parent: int, request: tuple[str, tuple[str, ...], dict[str, str], str], descriptors: list[int]) -> None:
    """Be the process that was asked for, as if it had been started cold."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    program, arguments, environ, cwd = request
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    os.chdir(cwd)
    sys.argv = [program, *arguments]
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.modules["__main__"].__file__ = program


def _main() -> None:
    caller, parent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    for name in PRELOAD:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # no child walks through what is there now, and thereby copies it
    _serve(caller, parent)
    sys.path[0] = str(Path(sys.argv[0]).parent)  # as for a script; `-m` put the folder of then there
    from flows.cli import main

    main()


if __name__ == "__main__":
    _main()
