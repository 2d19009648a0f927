"""Answers a Python process that has imported `loopline`: its questions and our answers are JSON, one a line.

The process asks on standard input and reads standard output; both ends say the number of the protocol. A loop and a
server are commands of their own, as in a shell: they can be ended while the session goes on. Everything else happens
here, where a loaded model stays loaded. If the process that asks dies, standard input ends, and so does the session
with all that it began.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from models.errors import PREFIX, LooplineError
from models.launch import launched
from models.parent_death import ends_with_parent

PROTOCOL = 1
"""Of the lines between the package `loopline` (`infra/client/loopline/session.py`) and this program."""
LOOK_S = 1.0
"""Seconds between two looks whether the process that asks lives: its forks may hold its end of the pipe open."""
STOP_S = 2.0
"""The longest time that a command has to end by itself; the rest of the five seconds is for the books of one killed."""
ASIDE = 0
"""The number of a command for which no question waits; those of questions begin at 1."""

Message = dict[str, Any]


class Ended(NamedTuple):
    """A command that has ended: its exit code, what it printed, and its error's message."""

    code: int
    printed: str
    message: str


class Cancelled(Exception):  # noqa: N818 - the other process wants it so
    """The other process has cancelled the question."""


def answer(calls: Mapping[str, Call]) -> None:
    """Answer the questions of the process that began this one by functions, until it ends.

    Args:
        calls: The functions by name; each gets the session and the question, and returns the answer.
    """
    session = Session()
    session.send({"protocol": PROTOCOL, "version": version("loopline")})
    threading.Thread(target=session.listen, name="loopline-listen", daemon=True).start()
    session.work(calls)


class Session:
    """Questions of one process, answered one after the other.

    Attributes:
        environment: That of the process which asks, for commands; the tools' settings come into this process's own.
    """

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self._output = os.dup(1)
        os.dup2(2, 1)  # what a library prints is no answer
        self._parent = os.getppid()
        self._questions: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: set[int] = set()
        self._cancelled: set[int] = set()
        self._children: dict[int, subprocess.Popen[str]] = {}

    def send(self, message: Message) -> None:
        """Send a message; the other process may be gone, which `listen` notices."""
        rest = memoryview(json.dumps(message, default=str).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._output, rest) :]

    def listen(self) -> None:
        """Read what the other process sends, also while a question is answered; end all when that process ends."""
        pending = bytearray()
        while os.getppid() == self._parent:
            if not select.select([0], [], [], LOOK_S)[0]:
                continue
            piece = os.read(0, 1 << 16)
            if not piece:
                break
            pending += piece
            if b"\n" in piece:
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
        with self._lock:  # no command begins any more
            for child in self._children.values():
                child.terminate()
            for child in self._children.values():
                _end(child)
            os._exit(0)

    def _hear(self, message: Message) -> None:
        if "cancel" not in message:
            with self._lock:
                self._open.add(message["id"])
            self._questions.put(message)
            return
        number = message["cancel"]
        with self._lock:
            is_open = number in self._open
            if is_open:
                self._cancelled.add(number)
        self.end(number)
        if not is_open:
            self.send({"cancelled": number})

    def work(self, calls: Mapping[str, Call]) -> None:
        """Answer each question by the function of its name."""
        while True:
            question = self._questions.get()
            number = question["id"]
            message: Message
            try:
                message = {"answer": calls[question["call"]](self, question)}
            except (LooplineError, Cancelled) as error:
                message = {"error": str(error)}
            except Exception as error:  # noqa: BLE001 - a defect ends a call, not the session
                traceback.print_exc()
                message = {"error": f"{type(error).__name__}: {error}: a defect of Loopline: please report it"}
            with self._lock:
                self._open.discard(number)
                is_cancelled = number in self._cancelled
            self.send({"cancelled": number} if is_cancelled else {"id": number, **message})

    def begin(self, number: int, *arguments: str, **streams: Any) -> subprocess.Popen[str]:
        """Begin a command of the command line for a question; it ends when the question is cancelled, or by `end`.

        Raises:
            Cancelled: The question is cancelled already.
        """
        with self._lock:
            if number in self._cancelled:
                raise Cancelled
            self._children[number] = child = subprocess.Popen(
                ends_with_parent(launched("flows.cli", *arguments)),
                stdin=subprocess.DEVNULL,
                env=self.environment,
                text=True,
                errors="replace",
                **streams,
            )
        return child

    def end(self, number: int) -> None:
        """End the command that was begun for a question, if there is one: by SIGKILL if it takes too long."""
        with self._lock:
            child = self._children.pop(number, None)
        if child:
            _end(child)

    def follow(self, number: int, *arguments: str) -> Ended:
        """Run a command, and pass on each line of its standard error as progress, but the message of an error."""
        with tempfile.TemporaryFile("w+") as printed:
            child = self.begin(number, *arguments, stdout=printed, stderr=subprocess.PIPE)
            assert child.stderr
            message: list[str] = []
            with child.stderr as lines:
                for line in map(str.rstrip, lines):
                    if message or line.startswith(PREFIX):
                        message.append(line.removeprefix(PREFIX))
                    else:
                        self.send({"id": number, "line": line})
            code = child.wait()
            self.end(number)
            printed.seek(0)
            return Ended(code, printed.read(), "\n".join(message))


def _end(child: subprocess.Popen[str]) -> None:
    child.terminate()
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


Call = Callable[[Session, Message], Message]
