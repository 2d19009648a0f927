"""The process of the program `loopline` that answers this one, question after question.

Questions and answers are JSON, one a line, over its standard input and output. Each question has an id, which all that
belongs to its answer repeats; so what an interrupted call left behind is never taken for the answer of the next.
"""

from __future__ import annotations

import atexit
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopline.errors import LooplineError

PROTOCOL = 1
"""Of the lines between this package and the program; `flows/session.py` has the same number."""
PROGRAM = "LOOPLINE_PROGRAM"
INSTALL = f"install Loopline again, or name another by {PROGRAM}"
"""The cure of a program that never answers."""
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
        threading.Thread(target=self._read, name="loopline-session", daemon=True).start()
        hello = self._messages.get()
        if hello is None:
            raise self._ended("does not answer", INSTALL)
        if hello.get("protocol") != PROTOCOL:
            self.end()
            raise LooplineError(
                f"{program}: is Loopline {hello.get('version')} with protocol {hello.get('protocol')}, expected "
                f'{PROTOCOL}: take the client of this program: `pip install "$({shlex.quote(program)} client)"`'
            )

    def ask(self, question: Mapping[str, Any]) -> Message:
        """Return the answer to a question; print its progress on standard error.

        Raises:
            LooplineError: What the program says of the error, or that it ended.
            KeyboardInterrupt: After the program has ended what it did for this question.
        """
        with self._lock:
            number = next(self._ids)
            try:
                self._send({"id": number, **question})
                message = self._answer(number)
            except BrokenPipeError:
                message = None
            except BaseException:
                self._cancel(number)
                raise
        if message is None:
            raise self._ended("ended amid this call", "call again, which begins it anew")
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
        assert self._process.stdin
        rest = memoryview(json.dumps(message).encode() + b"\n")
        while rest:
            rest = rest[self._process.stdin.write(rest) :]

    def _answer(self, number: int) -> Message | None:
        """Return the last message of a question; None if the process ended."""
        while (message := self._messages.get()) is not None:
            if message.get("id") != number:
                continue
            if "line" not in message:
                return message
            print(message["line"], file=sys.stderr, flush=True)
        self._messages.put(None)  # for the next call
        return None

    def _cancel(self, number: int) -> None:
        """End what the process does for a question, or the process; messages of that question are passed over."""
        deadline = time.monotonic() + CANCEL_S
        try:
            self._send({"cancel": number})
            while (message := self._messages.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
                if message.get("cancelled") == number:
                    return
        except BaseException as error:
            self._process.kill()
            self.end()
            if not isinstance(error, OSError | queue.Empty):
                raise  # a second Ctrl-C

    def _read(self) -> None:
        """Read in a thread: a signal may interrupt the main thread amid a line, and the rest would be no JSON."""
        assert self._process.stdout
        with self._process.stdout as output, open(output.fileno(), closefd=False) as lines:
            for line in lines:
                try:
                    self._messages.put(json.loads(line))
                except ValueError:
                    break
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


def session() -> Session:
    """Return the session of this process: a new one if the last ended, or the folder or the environment changed.

    So a call does what a command would do that was begun in its place.

    Raises:
        LooplineError: There is no program, or it does not answer.
    """
    with _lock:
        place = (os.getcwd(), dict(os.environ))  # noqa: PTH109 - a text, for a comparison
        before = _sessions.pop(os.getpid(), None)
        if before and before[0] == place and before[1].is_alive():
            _sessions[os.getpid()] = before
            return before[1]
        if before:
            before[1].end()
        begun = Session(find_program())
        _sessions[os.getpid()] = (place, begun)
        return begun


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
def _end() -> None:
    if ours := _sessions.pop(os.getpid(), None):
        ours[1].end()
