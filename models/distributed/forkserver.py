"""The fork server of ranks: a process that imported torch once and forks a child for every job.

A child starts in 0.2 s; a fresh interpreter takes 7 s or more. The standard forkserver is not used because every child
would import the caller's `__main__` (prefect.engine, a console script, pytest) again.

The fork server ends when its caller ends; the kernel kills its children, and their children, when the parent dies. The
fork server starts no thread, so that forking stays safe.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import pkgutil
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from models.parent_death import die_with
from models.project_spec import own_reads

PRELOAD = (
    "torch",
    "models.training.rank",
    "models.training.agent",
    "models.training.trees",
    "models.export.validation_scores",
    "models.data.feeds",
)
"""What every child has: the last three cost 70 ms of CPU, and most children of a search would import them again."""
OF_RANKS = ("models.distributed.pipeline", "models.training.checkpoints.shards")
"""What several ranks of a job have too, with torch's DTensors, FSDP and compiler: 1.7 s of CPU."""
_HEADER = struct.Struct("<QI")
_MOST_DESCRIPTORS = 253
_LOOK_S = 0.5


def send(sock: socket.socket, value: Any, descriptors: tuple[int, ...] = ()) -> None:
    """Send a picklable value and file descriptors."""
    content = pickle.dumps(value)
    socket.send_fds(sock, [_HEADER.pack(len(content), len(descriptors))], descriptors)
    sock.sendall(content)


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """Receive a message of `send`.

    Raises:
        EOFError: The other side has closed the socket.
    """
    header, descriptors, _, _ = socket.recv_fds(sock, _HEADER.size, _MOST_DESCRIPTORS)
    if not header:
        raise EOFError
    length, _ = _HEADER.unpack(header + _exactly(sock, _HEADER.size - len(header)))
    return pickle.loads(_exactly(sock, length)), list(descriptors)  # noqa: S301  from the own caller


def serve(descriptor: int, caller: int, modules: Sequence[str] = ()) -> None:
    """Fork a child for each request on the socket until the caller ends. Never returns.

    All children have `modules`.

    Requests are ("start", function reference, arguments) with the child's connections, answered by its pid;
    ("wait", pid), answered by its exit code (negative: the signal that killed it); and ("import", module), answered by
    None when all later children have the module.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    sock = socket.socket(fileno=descriptor)
    _import(modules, caller)
    while os.getppid() == caller:
        if not select.select([sock], [], [], _LOOK_S)[0]:
            continue
        try:
            (request, *rest), descriptors = receive(sock)
        except (EOFError, ConnectionError):
            break
        if request == "wait":
            send(sock, os.waitstatus_to_exitcode(os.waitpid(rest[0], 0)[1]))
            continue
        if request == "import":
            _import(rest, caller)
            send(sock, None)
            continue
        fork_server, pid = os.getpid(), os.fork()
        if pid == 0:
            sock.close()
            _live(fork_server, rest[0], rest[1], descriptors)
        for each in descriptors:
            os.close(each)
        send(sock, pid)
    os._exit(0)


def _import(modules: Iterable[str], caller: int) -> None:
    """Import modules, of which a child's garbage collection visits, and so copies, no object.

    Collections amid the imports would take a tenth of their time: 3.5 instead of 3.1 CPU-s.
    """
    gc.disable()
    with _ending_with(caller):
        for name in modules:
            __import__(name)
    gc.enable()
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _ending_with(caller: int) -> Iterator[None]:
    """End this process soon after its caller, also during imports that take seconds.

    It uses a timer, because forking with a thread is unsafe. The kernel's PDEATHSIG depends on the caller's thread,
    which may end long before the caller.
    """

    def look(_: int, __: object) -> None:
        if os.getppid() != caller:
            os._exit(1)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def report_error(connection: Connection, error: BaseException) -> None:
    """Send an error to the caller: its type, its text, and the traceback as text."""
    connection.send(("error", type(error).__name__, str(error), "".join(traceback.format_exception(error))))


def call_reference(connections: list[Connection], reference: str, keywords: dict[str, Any]) -> None:
    """Call `package.module:function`; send what own code read meanwhile, also after an error, then its return value."""
    with own_reads.collecting() as reads:
        try:
            value = pkgutil.resolve_name(reference)(**keywords)
        finally:
            if len(reads):
                connections[0].send(("reads", reads))
    connections[0].send(("value", value))


def _live(fork_server: int, reference: str, arguments: tuple[Any, ...], descriptors: list[int]) -> None:
    code = 1
    connections = [Connection(descriptor) for descriptor in descriptors]
    try:
        die_with(fork_server)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        pkgutil.resolve_name(reference)(connections, *arguments)
        code = 0
    except BaseException as error:  # noqa: BLE001  every error is sent to the caller
        report_error(connections[0], error)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = sock.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
