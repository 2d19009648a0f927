"""A fork server for the command line in tests: what `loopline run` imports in six seconds is imported once.

Each command is a process of its own, with its own environment, folder, files and signals; only the imports are shared,
and what a process does once (`tests/preloaded.py`).
What a cold start alone can show (`PYTHON...` variables, the locale, which modules are imported) is started cold.

A command that may train has a child beside it from the start that has torch, and becomes the process that starts its
ranks when the command asks for one; should that one die, the next is started cold.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import logging
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import filelock

from models.cores import WAITING
from models.distributed.forkserver import receive, send
from tests.cheap_forks import make_forks_cheap
from tests.forked import end_with, pause
from tests.shown_process import ROOM, show
from tests.warm_call import CODE, begin, exit_code_of
from tests.warm_python import script_of

ROOT = Path(__file__).parents[1]
TRAINING = ("run", "backtest", "prefect.engine")
"""Commands and modules that may start ranks."""
DVC = "dvc"
"""The program of DVC, in place of ours."""
MODULE = "-m"
"""What Python takes for a module to run, in place of our program."""
FORK_SERVER = "fork_server"
"""The process that starts ranks, in place of our program."""
ADDRESS = "TESTS_WARM_PARENT"
"""The variable that names the parent which a test process was forked from."""
RANKS_NAME = "test-ranks"
"""How the kernel names the process that starts ranks, and the ranks: their command line is that of this server."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


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
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile, as for `subprocess.Popen`
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _look(self, timeout: float | None) -> int | None:
        if self._exit_code is not None and select.select([self._exit_code], [], [], timeout)[0]:
            self.returncode = exit_code_of(self._exit_code)
            self._exit_code = None
        return self.returncode

    def __del__(self) -> None:
        if self._exit_code is not None:
            os.close(self._exit_code)


Started = Process | subprocess.Popen[bytes]
"""A process that was forked, or started cold."""


class Server:
    """A connection to the warm parent of the commands that the tests start; all workers of a test run share the parent.

    The commands that were started over a connection are killed when it closes, and the parent ends with the last one.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._socket = connect(self.address)
        atexit.register(self._socket.close)

    def start(
        self,
        program: Path | str,
        arguments: tuple[str, ...],
        environ: dict[str, str],
        cwd: Path,
        files: tuple[int, ...],
    ) -> Process:
        """A process that calls the program with these arguments; `files` are its input, output and error.

        The program `-c` runs its one argument as Python does, MODULE the module that its first one names; DVC is DVC's
        program; FORK_SERVER starts ranks for whoever holds the other end of the socket that is its fourth file.
        """
        try:
            with self._lock:
                return Process(*begin(self._socket, str(program), arguments, environ, str(cwd), files))
        except (EOFError, ConnectionError) as error:
            cure = "`python -c 'from tests.preloaded import preload; preload()'` says why; `make setup` may help"
            raise RuntimeError(f"the parent of the tests' commands ended: {cure}") from error


def connect(address: str) -> socket.socket:
    """A connection to the parent at this address, which is started if there is none."""
    made = socket.socket(socket.AF_UNIX)
    with _coming_and_going():
        try:
            made.connect(address)
        except OSError:
            argument, variable = ROOM
            program = [sys.executable, "-m", "tests.warm", address, argument]
            subprocess.run(program, stdin=subprocess.DEVNULL, cwd=ROOT, env=WAITING | variable | os.environ, check=True)
            made.connect(address)
    return made


def address_of(run: str | int) -> str:
    """Where the parent of a test run listens."""
    return str(Path(tempfile.gettempdir()) / f"loopline-warm-{run}")


def _coming_and_going() -> filelock.BaseFileLock:
    """Held while a caller comes, and while a parent sees that none does and goes."""
    return filelock.FileLock(Path(tempfile.gettempdir()) / "loopline-warm.lock")


@functools.cache
def server() -> Server:
    """The connection of this test process, made at first use."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    return Server(os.environ.get(ADDRESS, address_of(run)))


def start_python(arguments: Sequence[str], environ: dict[str, str], cwd: Path, output: BinaryIO) -> Started:
    """`python ARGUMENTS` under way, what it prints in a file: `-m MODULE` is forked if it may be, all else is cold."""
    if arguments[0] == MODULE and may_share_imports(environ):
        with Path(os.devnull).open("rb") as nothing:
            files = nothing.fileno(), output.fileno(), output.fileno()
            return server().start(MODULE, tuple(arguments[1:]), environ, cwd, files)
    return start_cold(arguments, environ, cwd, output)


def start_cold(
    arguments: Sequence[str], environ: dict[str, str], cwd: Path, output: BinaryIO, tracer: Sequence[str] = ()
) -> Started:
    """`python ARGUMENTS` under way, what it prints in a file."""
    command = [*tracer, sys.executable, *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ, cwd=cwd)


def caller_of(program: Path | str, address: str) -> tuple[str, ...]:
    """What has the parent at this address run a program: DVC for `dvc_repo.PROGRAM`, ours for DVC's stages."""
    return (sys.executable, "-S", str(ROOT / "tests" / "warm_call.py"), address, str(program))


def may_share_imports(environ: dict[str, str]) -> bool:
    """Whether nothing in the environment is read by the interpreter itself as it starts."""
    names = {name for name in {*environ, *os.environ} if name.startswith(("PYTHON", "LC_", "LANG"))}
    return all(environ.get(name) == os.environ.get(name) for name in names)


class _Parent:
    """Forks a child for each request and tells its exit code, until the last caller is gone."""

    def __init__(self, address: Path) -> None:
        self._address = address
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(address))
        self._listener.listen()
        self._callers: list[socket.socket] = []
        self._children: dict[int, tuple[socket.socket, int]] = {}
        self._waking, self._woken = os.pipe()
        os.set_blocking(self._waking, False)
        os.set_blocking(self._woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken)

    def serve(self) -> None:
        """Returns in the children alone."""
        self._callers.append(self._listener.accept()[0])  # whoever started this
        while self._callers or not self._is_over():
            ready, _, _ = select.select([self._listener, self._waking, *self._callers], [], [], 1)
            with contextlib.suppress(BlockingIOError):
                os.read(self._waking, 4096)
            self._reap()
            for caller in ready:
                if caller is self._listener:
                    self._callers.append(self._listener.accept()[0])
                elif caller is not self._waking and self._answer(caller):
                    return
        os._exit(0)

    def _is_over(self) -> bool:
        with _coming_and_going():
            if select.select([self._listener], [], [], 0)[0]:
                return False
            self._address.unlink(missing_ok=True)
            script_of(str(self._address)).unlink(missing_ok=True)
            return True

    def _answer(self, caller: socket.socket) -> bool:
        """Whether this is the child that was asked for."""
        try:
            request, descriptors = receive(caller)
        except (EOFError, ConnectionError):
            self._callers.remove(caller)
            for pid, (asked, _) in self._children.items():
                if asked is caller:
                    os.kill(pid, signal.SIGKILL)
            caller.close()
            return False
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            self._close()
            try:
                _become(parent, request, descriptors)
            except BaseException:
                traceback.print_exc()
                os._exit(1)  # the interpreter's own end waits for threads that no fork has
            return True
        *files, exit_code = descriptors
        self._children[pid] = caller, exit_code
        for descriptor in files:
            os.close(descriptor)
        with contextlib.suppress(ConnectionError):  # a caller that was killed meanwhile: its end is the next to be read
            send(caller, pid)
        return False

    def _reap(self) -> None:
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                _, exit_code = self._children.pop(pid)
                with contextlib.suppress(BrokenPipeError):
                    os.write(exit_code, CODE.pack(os.waitstatus_to_exitcode(status)))
                os.close(exit_code)

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._waking, self._woken, *(exit_code for _, exit_code in self._children.values())):
            os.close(descriptor)
        for each in (self._listener, *self._callers):
            each.close()


def _become(parent: int, request: tuple[str, tuple[str, ...], dict[str, str], str], descriptors: list[int]) -> None:
    """Be the process that was asked for, as if it had been started cold."""
    _die_with(parent)
    program, arguments, environ, cwd = request
    if program == FORK_SERVER:
        arguments = (str(os.dup(descriptors[3])),)
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environ.clear()  # while the variables stand where they are shown: else the C library keeps pieces of ours
    show((sys.executable, program, *arguments), environ)
    os.environ.update(environ)
    time.tzset()
    os.chdir(cwd)
    sys.argv = [program, *arguments]
    sys.orig_argv = [sys.executable, *sys.argv]  # for who replaces itself by itself
    pause()
    sys.modules["__main__"] = types.ModuleType("__main__")
    if program != "-c":
        sys.modules["__main__"].__file__ = program
    if (program == "-c" and "RankPool" in arguments[0]) or (arguments[:1] and arguments[0] in TRAINING):
        keep_ranks_ready()


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def keep_ranks_ready() -> None:
    """Fork the first fork server of the command's rank pool, while there are no threads."""
    from tasks.ranks import rank_pool

    ours, theirs = socket.socketpair()
    command, pid = os.getpid(), os.fork()
    if pid == 0:
        ours.close()
        _die_with(command)
        _wait_to_be_fork_server(theirs)
    theirs.close()
    rank_pool.subprocess = _Subprocess(pid, ours)


def _wait_to_be_fork_server(command: socket.socket) -> None:
    _be_fork_server()
    try:
        (start, environ, number), (descriptor,) = receive(command)
    except (EOFError, ConnectionError):
        os._exit(0)
    command.close()
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environ)
    exec(start, {"__name__": "__main__"})  # what the command gives `python -c`; never returns
    os._exit(1)


def _be_fork_server() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_NAME, RANKS_NAME.encode())
    os.setsid()


class _Standard:
    """The module `subprocess`, but for what a class that inherits from this has of it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)


class WarmNurseries(_Standard):
    """The `subprocess` of the rank pools in a test's own process: their fork servers are forks of the warm parent."""

    def Popen(self, _: list[str], *, pass_fds: list[int], env: dict[str, str], **__: Any) -> Process:  # noqa: N802
        with Path(os.devnull).open("rb") as nothing:
            files = nothing.fileno(), 1, 2, pass_fds[0]
            return server().start(FORK_SERVER, (), env, ROOT, files)


class _Subprocess(_Standard):
    """The `subprocess` that the rank pool of a command uses."""

    def __init__(self, pid: int, ready: socket.socket) -> None:
        self._pid, self._ready = pid, ready
        self.Popen = self._begin

    def _begin(self, command: list[str], *, pass_fds: list[int], env: dict[str, str], **rest: Any) -> Any:
        if self._ready is not None:
            ready, self._ready = self._ready, None
            with ready, contextlib.suppress(OSError):
                send(ready, (command[-1], env, pass_fds[0]), tuple(pass_fds))
                return _Child(self._pid)
        return subprocess.Popen(command, pass_fds=pass_fds, env=env, **rest)


class _Child:
    """The fork server, as the rank pool sees it."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("fork server", timeout)
            time.sleep(0.005)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def _main() -> None:
    """Listen, let whoever started this go on, and serve."""
    gc.disable()  # it would go through four million objects again and again, a third of the time of the imports
    from tasks.host import memory
    from tasks.tools import dvc_repo
    from tests.preloaded import HUGE_MB, PICTURES, leave_pictures_blank, preload
    from tests.warm_python import STARTERS, stand_in

    starters = [importlib.import_module(name) for name in STARTERS]
    parent = _Parent(Path(sys.argv[1]))
    if os.fork():
        os._exit(0)
    preload()
    stand_in(sys.argv[1], *starters)
    dvc_repo.PROGRAM = caller_of(DVC, sys.argv[1])
    make_forks_cheap()
    gc.enable()
    parent.serve()
    if sys.argv[0] == "-c":
        end_with(lambda: exec(sys.argv[1], sys.modules["__main__"].__dict__))
    if sys.argv[0] == MODULE:
        module, sys.argv = sys.argv[1], sys.argv[1:]
        warnings.filterwarnings("ignore", "'.*' found in sys.modules", RuntimeWarning)
        end_with(lambda: runpy.run_module(module, run_name="__main__", alter_sys=True))
    if sys.argv[0] == FORK_SERVER:
        from models.distributed import forkserver

        _be_fork_server()
        forkserver.serve(int(sys.argv[1]), os.getppid())
    if sys.argv[0] == DVC:
        from dvc.cli import main as dvc

        logging.getLogger().handlers.clear()  # those of other libraries
        end_with(lambda: sys.exit(dvc(sys.argv[1:])))
    sys.path[0] = str(Path(sys.argv[0]).parent)  # as for a script; `-m` put the folder of then there
    from flows.cli import main

    if PICTURES not in os.environ:
        leave_pictures_blank()
    memory.WORTH_MB = HUGE_MB
    end_with(main)


if __name__ == "__main__":
    _main()
