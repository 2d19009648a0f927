"""The process of the program `loopline` that answers this one, question after question.

Questions and answers are JSON, one a line, over its standard input and output. Each question has an id, which all that
belongs to its answer repeats; so what an interrupted call left behind is never taken for the answer of the next.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import queue
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loopline.errors import LooplineError

PROTOCOL = 1
"""Of the lines between this package and the program; `flows/session.py` has the same number."""
PROGRAM = "LOOPLINE_PROGRAM"
INSTALL = f"install Loopline again, or name another by {PROGRAM}"
"""The cure of a program that never answers."""
AGAIN = "call again, which begins it anew"
NOT_PASSED = ("MPLBACKEND",)
"""What a notebook's kernel sets for its own Python."""
CANCEL_S = 4.4
"""The longest wait for the end of an interrupted call, in which a loop closes its books; then the session is killed."""
END_S = 5.0

Message = dict[str, Any]


class Session:
    """A running process that answers.

    Args:
        program: Its path.

    Attributes:
        num_users: Blocks of `session` that use it now; those of other threads may go on when a call begins another.

    Raises:
        LooplineError: It is no Loopline, or one of another protocol.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        environment = {name: value for name, value in os.environ.items() if name not in NOT_PASSED}
        try:
            self._process = subprocess.Popen(
                [program, "session"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
                start_new_session=True,  # a terminal sends Ctrl-C to each process of this one's group
            )
        except OSError as error:
            raise LooplineError(f"{program}: cannot be started ({error.strerror}): {INSTALL}") from error
        self.num_users = 0
        try:
            threading.Thread(target=self._read, name="loopline-session", daemon=True).start()
            hello = self._next()
            if hello is None:
                raise self._ended("does not answer", INSTALL)
            if hello.get("protocol") != PROTOCOL:
                raise LooplineError(
                    f"{program}: is Loopline {hello.get('version')} with protocol {hello.get('protocol')}, expected "
                    f'{PROTOCOL}: take the client of this program: `pip install "$({shlex.quote(program)} client)"`'
                )
        except BaseException:  # also Ctrl-C
            self._process.kill()
            self.end()
            raise

    def ask(self, question: Mapping[str, Any]) -> Message:
        """Return the answer to a question; print its progress on standard error.

        Raises:
            LooplineError: What the program says of the error, or that it ended.
            KeyboardInterrupt: After the program has ended what it did for this question.
        """
        with self._lock:
            if self._errors.closed:
                raise LooplineError(f"{self._program}: ended amid the call of another thread: {AGAIN}")
            number = next(self._ids)
            try:
                self._send({"id": number, **question})
                message = self._answer(number)
            except BaseException:
                self._cancel(number)
                raise
        if message is None:
            raise self._ended("ended amid this call", AGAIN)
        if "error" in message:
            raise LooplineError(message["error"])
        answer: Message = message["answer"]
        return answer

    def is_alive(self) -> bool:
        """Return whether the process can answer."""
        return self._process.poll() is None

    def end(self) -> None:
        """End the process, which ends by itself when nobody can ask any more."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _send(self, message: Message) -> None:
        """Send a message; the process may have ended, which the next message says."""
        assert self._process.stdin
        rest = memoryview(json.dumps(message).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):
            while rest:
                rest = rest[self._process.stdin.write(rest) :]

    def _next(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message; None, now and later, if the process ended.

        Raises:
            queue.Empty: None came in time.
        """
        message = self._messages.get(timeout=timeout_s)
        if message is None:
            self._messages.put(None)
        return message

    def _answer(self, number: int) -> Message | None:
        """Return the last message of a question; None if the process ended."""
        while (message := self._next()) is not None:
            if message.get("id") != number:
                continue
            if "line" not in message:
                return message
            print(message["line"], file=sys.stderr, flush=True)
        return None

    def _cancel(self, number: int) -> None:
        """End what the process does for a question, or the process; messages of that question are passed over."""
        deadline = time.monotonic() + CANCEL_S
        try:
            self._send({"cancel": number})
            while (message := self._next(max(0.0, deadline - time.monotonic()))) is not None:
                if message.get("cancelled") == number:
                    return
        except BaseException as error:
            self._process.kill()
            self.end()
            if not isinstance(error, queue.Empty):
                raise  # a second Ctrl-C

    def _read(self) -> None:
        """Read in a thread: a signal may interrupt the main thread amid a line, and the rest would be no JSON."""
        assert self._process.stdout
        with self._process.stdout as output, open(output.fileno(), closefd=False) as lines:
            for line in lines:
                try:
                    message = json.loads(line)
                except ValueError:
                    break
                if not isinstance(message, dict):
                    break
                self._messages.put(message)
        self._messages.put(None)

    def _ended(self, what: str, cure: str) -> LooplineError:
        """Return the error for a process that ended, or said what no session says."""
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        self.end()
        reason = next((line for line in reversed(lines) if line.strip()), "it ended without a word").strip()
        return LooplineError(f"{self._program}: {what} ({reason}): {cure}")


_sessions: dict[int, tuple[Any, Session]] = {}
"""By the id of this process: a fork has its own."""
_lock = threading.Lock()


def _in_fork() -> None:
    """Take a new lock in a fork: a thread that does not exist there may have held the old one."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_fork)


def ask(question: Mapping[str, Any]) -> Message:
    """Return the answer to a question of this process's session, as `Session.ask` does."""
    with session() as running:
        return running.ask(question)


@contextlib.contextmanager
def session() -> Iterator[Session]:
    """Yield the session of this process: a new one if the last ended, or the folder or the environment changed.

    So a call does what a command would do that was begun in its place. The last session ends when no thread uses it.

    Raises:
        LooplineError: There is no program, or it does not answer.
    """
    with _lock:
        ours = _current()
        ours.num_users += 1
    try:
        yield ours
    finally:
        with _lock:
            ours.num_users -= 1
            _end_replaced(ours)


def _current() -> Session:
    try:
        folder = os.getcwd()  # noqa: PTH109 - a text, for a comparison
    except FileNotFoundError as error:
        raise LooplineError("the current folder was deleted: change to another one (`os.chdir`)") from error
    place, before = (folder, dict(os.environ)), _sessions.get(os.getpid())
    if before and before[0] == place and before[1].is_alive():
        return before[1]
    begun = Session(find_program())
    _sessions[os.getpid()] = place, begun
    if before:
        _end_replaced(before[1])
    return begun


def _end_replaced(former: Session) -> None:
    """End a session that nobody uses, unless it is the one for the next call."""
    if not former.num_users and (os.getpid() not in _sessions or _sessions[os.getpid()][1] is not former):
        former.end()


def find_program() -> str:
    """Return the program `loopline`: that of LOOPLINE_PROGRAM, that beside this Python, or the first on PATH.

    Raises:
        LooplineError: There is none.
    """
    named = os.environ.get(PROGRAM)
    if named:
        program = shutil.which(Path(named).expanduser())
        if program is None:
            raise LooplineError(f"{PROGRAM}: got {named}, which is no program: correct the variable, or unset it")
        return program
    beside = str(Path(sys.executable).parent)
    program = shutil.which("loopline", path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if program is None:
        raise LooplineError(
            f"loopline: there is no such program on PATH: install it, or name it by {PROGRAM}, such as "
            "~/.local/bin/loopline"
        )
    return program


@atexit.register
def end() -> None:
    """End the session of this process; the next call begins another."""
    if ours := _sessions.pop(os.getpid(), None):
        ours[1].end()
