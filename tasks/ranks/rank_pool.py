"""The rank pool: starts training jobs from a process without torch, and never leaves a rank behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from models import errors
from models.cores import WAITING, usable_cores
from models.distributed.forkserver import OF_RANKS, PRELOAD, receive, send
from models.errors import LooplineError, TrainingError
from models.nets.catalogue import full_row_of, row_of
from models.project_spec import own_reads
from models.training.checkpoints.finished import read_finished
from models.training.job import EpochReport, TrainingJob, TrainingResult

OnEpoch = Callable[[EpochReport], bool]
_CALLS = 2
_NURSERIES = 3
_ENDING_S = 2.0

_START = """\
import sys
sys.path[:] = {path!r}
from models.distributed.forkserver import serve
serve({fd}, {pid}, {modules!r})
"""
# The ranks must not share the agent's TCP store, or one of two restarts fails at first. Counting devices must not
# initialise CUDA in a process that forks.
_ENVIRONMENT = {
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
_LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


def default_threads(ranks: int, workers: int = 1) -> int:
    """Return the threads per rank with which `workers` jobs of `ranks` ranks share the cores evenly."""
    return max(1, usable_cores() // (ranks * workers))


class StoppedWaitingError(Exception):
    """The caller no longer waits for its job."""


class _ForkServerKilledError(TrainingError):
    """A signal ended the fork server."""


@dataclass
class _RankProcess:
    """A child of the fork server and this side of its connections."""

    pid: int
    connections: list[Connection]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


@dataclass
class _JobRun:
    """The state of a running job over all its restarts."""

    job: TrainingJob
    on_epoch: OnEpoch | None
    starts: int = 0
    answers: dict[tuple[str, int], bool] = field(default_factory=dict)

    def answer(self, epoch: EpochReport) -> bool:
        """Call `on_epoch` once per epoch; an epoch repeated after a restart gets the earlier result."""
        which = epoch.stage, epoch.epoch
        if which not in self.answers:
            self.answers[which] = self.on_epoch(epoch) if self.on_epoch else True
        return self.answers[which]


class RankPool:
    """Runs jobs in children of a fork server that has imported torch; safe to use from several threads at once.

    Args:
        threads: Threads for each rank, in place of the job's own number.
        preload: What the fork server imports; empty for calls that need no torch.
    """

    def __init__(self, threads: int | None = None, preload: Sequence[str] = PRELOAD) -> None:
        self._threads = threads
        self._preload = preload
        self._lock = threading.Lock()
        self._fork_server: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._imported: set[str] = set()
        self._children: dict[int, _RankProcess] = {}
        self._is_stopped = False

    def __enter__(self) -> RankPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def warm(self, nets: Iterable[str] = ()) -> None:
        """Start the fork server, which imports torch and what the nets need in the background; return at once."""
        with self._lock:
            self._ensure_fork_server([module for net in nets for module in row_of(net).modules])

    def run(self, job: TrainingJob, on_epoch: OnEpoch | None = None) -> TrainingResult:
        """Train `job` to its end; the result of a finished job is read from its folder.

        A rank that dies is started again from the last checkpoint, at most `train.max_restarts` times. If this process
        dies, or this call raises, every rank is gone within two seconds.

        Args:
            job: The training job.
            on_epoch: Called once per epoch; false stops the job early.

        Raises:
            StoppedWaitingError: `stop` was called.
            TrainingError: The loss is not finite, or ranks died too often.
            LooplineError: The error that a rank raised, with its own traceback as a note.
        """
        if self._threads is not None:
            job = job.model_copy(update={"threads": self._threads})
        finished = read_finished(job)
        if finished is not None:
            return finished
        run, deaths = _JobRun(job, on_epoch), 0
        alone = job.processes.ranks == 1
        target, count = ("run_alone", 1) if alone else ("run_ranks", 1 + job.train.ranks)
        modules = (*full_row_of(job.model.net, job.project).modules, *(() if alone else OF_RANKS))
        while True:
            child = self._start(f"models.training.agent:{target}", (job,), count, modules)
            try:
                result = _follow(child, run)
            finally:
                code = self._end(child)
                shutil.rmtree(job.scratch_folder, ignore_errors=True)
            if result is not None:
                return result
            if self._is_stopped:
                raise StoppedWaitingError
            deaths += 1
            if deaths > job.train.max_restarts:
                raise TrainingError(
                    f"{job.folder}: the process that trains it was ended by {_ended_by(code)} {deaths} time(s): "
                    "if memory ran out, train a smaller net or batch; finished work is kept: run again to continue"
                )

    def call(self, reference: str, **keywords: Any) -> Any:
        """Call `package.module:function` with plain data in a child of the fork server and return its plain result.

        A child that is killed is replaced once: its end is no fault of the trial that asked.

        Raises:
            LooplineError: The error that it raised, with its traceback as a note; a foreign error as TrainingError.
        """
        code: int | None = None
        for _ in range(_CALLS):
            child = self._start("models.distributed.forkserver:call_reference", (reference, keywords), 1)
            try:
                message = child.connections[0].recv()
                if message[0] == "reads":
                    own_reads.credit(message[1])
                    message = child.connections[0].recv()
            except (EOFError, ConnectionResetError):
                message = None
            finally:
                code = self._end(child)
            match message:
                case ("value", value):
                    return value
                case ("error", name, text, trace):
                    raise rebuilt(name, text, trace)
        raise TrainingError(f"{reference}: its process was ended by {_ended_by(code)}: run again")

    def close(self) -> None:
        """End every child and the fork server."""
        with self._lock:
            self._drop_fork_server()

    def stop(self) -> None:
        """End all calls of `run` soon, those of other threads too: a person or a signal ends the loop."""
        self._is_stopped = True
        self.close()

    def _start(self, target: str, arguments: tuple[Any, ...], count: int, modules: Iterable[str] = ()) -> _RankProcess:
        """Start a child with `count` connections and `modules`; replace the fork server if it is killed meanwhile."""
        for _ in range(_NURSERIES - 1):
            with contextlib.suppress(_ForkServerKilledError):
                return self._start_once(target, arguments, count, modules)
        return self._start_once(target, arguments, count, modules)

    def _start_once(self, target: str, arguments: tuple[Any, ...], count: int, modules: Iterable[str]) -> _RankProcess:
        pairs = [socket.socketpair() for _ in range(count)]
        try:
            with self._lock:
                if self._is_stopped:
                    raise StoppedWaitingError
                self._ensure_fork_server(modules)
                for module in modules:  # in the fork server, so that later children need not
                    if module not in self._imported:
                        self._request(("import", module), ())
                        self._imported.add(module)
                pid = self._request(("start", target, arguments), tuple(theirs.fileno() for _, theirs in pairs))
                child = _RankProcess(pid, [Connection(ours.detach()) for ours, _ in pairs])
                self._children[pid] = child
                return child
        finally:
            for ours, theirs in pairs:
                ours.close()
                theirs.close()

    def _end(self, child: _RankProcess) -> int | None:
        """Make sure that a child and its own children are gone; return its exit code, or None if unknown."""
        child.close()
        with self._lock:
            if self._children.pop(child.pid, None) is None or self._fork_server is None or self._socket is None:
                return None
            if self._fork_server.poll() is not None:  # the child died with it, and its pid may be reused by now
                self._drop_fork_server()
                return None
            # The child is not reaped yet, so its pid cannot be reused.
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            try:
                return int(self._exchange(self._socket, ("wait", child.pid), ()))
            except TrainingError:
                return None

    def _request(self, request: tuple[Any, ...], descriptors: tuple[int, ...]) -> Any:
        return self._exchange(self._ensure_fork_server(), request, descriptors)

    def _exchange(self, sock: socket.socket, request: tuple[Any, ...], descriptors: tuple[int, ...]) -> Any:
        """Send a request to the fork server of this socket and return its response: only it knows its children."""
        try:
            send(sock, request, descriptors)
            return receive(sock)[0]
        except (EOFError, OSError) as error:
            code = self._fork_server_exit_code()
            self._drop_fork_server()
            kind = _ForkServerKilledError if code is not None and code < 0 else TrainingError
            raise kind(
                f"the process that starts ranks has ended (exit code {code}): see what it printed above, run again"
            ) from error

    def _fork_server_exit_code(self) -> int | None:
        """Return the fork server's exit code, or None; its connection closes a moment before it ends."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._fork_server.wait(_ENDING_S) if self._fork_server else None
        return None

    def _ensure_fork_server(self, modules: Iterable[str] = ()) -> socket.socket:
        if self._fork_server is not None and self._fork_server.poll() is not None:
            self._drop_fork_server()
        if self._socket is None:
            ours, theirs = socket.socketpair()
            self._imported = {*modules}
            imported = (*self._preload, *sorted(self._imported))
            start = _START.format(path=sys.path, fd=theirs.fileno(), pid=os.getpid(), modules=imported)
            self._fork_server = subprocess.Popen(
                [sys.executable, "-c", start],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={"GLOO_SOCKET_IFNAME": _LOOPBACK, **WAITING, **os.environ, **_ENVIRONMENT},
                start_new_session=True,
            )
            theirs.close()
            self._socket = ours
        return self._socket

    def _drop_fork_server(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._fork_server is not None:
            # The kernel ends its children with it, and their children with them (parent-death signal).
            self._fork_server.kill()
            self._fork_server.wait()
        self._socket, self._fork_server = None, None
        self._children.clear()


def _follow(child: _RankProcess, run: _JobRun) -> TrainingResult | None:
    """Answer a job's messages until its result arrives; return None if its process died without a result."""
    open_ones = [*child.connections]
    result: TrainingResult | None = None
    control = child.connections[0]
    while control in open_ones:
        for ready in wait(open_ones):
            assert isinstance(ready, Connection)
            try:
                message = ready.recv()
            except (EOFError, ConnectionError):
                open_ones.remove(ready)
                continue
            match message:
                case ("start", pid):
                    ready.send(("started", pid, run.starts))
                    run.starts += 1
                case ("epoch", pid, epoch):
                    _answer(ready, pid, run.answer(epoch))
                case ("result", TrainingResult() as finished):
                    if len(child.connections) == 1:
                        return finished
                    result = finished
                case ("failed", text):
                    raise TrainingError(f"{run.job.folder}: {text} ({run.starts} start(s)): run again to continue")
                case ("error", name, text, trace):
                    raise rebuilt(name, text, trace)
    return result


def _answer(connection: Connection, pid: int, go_on: bool) -> None:
    # The rank may have died before its answer.
    with contextlib.suppress(BrokenPipeError, ConnectionError):
        connection.send(("answer", pid, bool(go_on)))


def rebuilt(name: str, text: str, trace: str) -> LooplineError:
    """Return a child's error, of its own class if it is a Loopline error, with the child's traceback as a note."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, LooplineError):
        error = kind(text)
    else:
        error = TrainingError(f"{name}: {text}")
    error.add_note(f"In the rank:\n{trace}")
    return error


def _ended_by(code: int | None) -> str:
    if code is None:
        return "an unknown cause"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
