"""The processes in which versions are tried: two at a time, and the last two stay for a minute."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from starlette.exceptions import HTTPException

from models.launch import launched
from models.serving.playground_form import PlaygroundAnswer, PlaygroundForm, PlaygroundRequest
from models.serving.registry import RegisteredVersion
from tasks.host.workspace import Workspace

MOST_AT_ONCE = 2
MOST_IN_LINE = 4
"""At work or waiting: each holds a thread of the server, which has other pages to show."""
WAIT_S = 10.0
LOAD_S, ANSWER_S, ECHO_S = 60.0, 20.0, 2.0
"""To load a version, which may have to be fetched first, to answer a request, and to say that it is there."""
BUSY = "Other rows are being tried: ask again in some seconds."
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Each thread of a library reserves address space, which is limited."""


class PlaygroundProcess:
    """A process that has loaded a version.

    Args:
        workspace: The workspace.
        project: The name in the spec.
        version: The version.
    """

    def __init__(self, workspace: Workspace, project: str, version: RegisteredVersion) -> None:
        command = launched("tasks.dashboard.playground_process", str(workspace.root), project)
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, **ONE_THREAD},
        )
        line, trouble = self._exchange(version.model_dump_json(exclude={"verdict"}), LOAD_S, "ask again later")
        self.form = PlaygroundForm.model_validate_json(line) if line else PlaygroundForm(trouble=trouble)

    @property
    def is_ready(self) -> bool:
        """Whether it can answer, as it seems without asking it."""
        return not self.form.trouble and self._process.poll() is None

    def echoes(self) -> bool:
        """Return whether it is there: one that waited may end just now, or may have been stopped."""
        return self._exchange("", ECHO_S)[0] == "\n"

    def answer(self, request: PlaygroundRequest) -> PlaygroundAnswer:
        """Return the version's answer."""
        cure = "try fewer rows, a shorter text, or ask later"
        line, trouble = self._exchange(request.model_dump_json(), ANSWER_S, cure)
        return PlaygroundAnswer.model_validate_json(line) if line else PlaygroundAnswer(trouble=trouble)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def _exchange(self, message: str, limit_s: float, cure: str = "") -> tuple[str, str]:
        """Return the line with which the process answers, or why it has ended without; `cure` of one that is slow."""
        assert self._process.stdin
        assert self._process.stdout
        began, timer = time.monotonic(), threading.Timer(limit_s, self._process.kill)
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(f"{message}\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if line.endswith("\n"):  # else it was ended while it wrote
            return line, ""
        number = self._process.wait()
        if time.monotonic() - began >= limit_s or number == -signal.SIGXCPU:
            return "", f"it took longer than {limit_s:g} s and was ended: {cure}"
        if number == -signal.SIGKILL:
            return "", "its process was killed, as Linux does where memory is short: ask again, or free some memory"
        return "", f"its process ended with {number}: the log of this page's service says more"


@contextlib.contextmanager
def _slot(slots: threading.Semaphore, timeout_s: float) -> Iterator[None]:
    if not slots.acquire(timeout=timeout_s):
        raise HTTPException(503, BUSY, {"Retry-After": "5"})
    try:
        yield
    finally:
        slots.release()


class PlaygroundPool:
    """Starts processes where no idle one has the version, and keeps the last ones."""

    def __init__(self) -> None:
        self._slots = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._line = threading.BoundedSemaphore(MOST_IN_LINE)
        self._lock = threading.Lock()
        self._idle: dict[tuple[Path, str, str], PlaygroundProcess] = {}

    @contextlib.contextmanager
    def process(self, workspace: Workspace, project: str, version: RegisteredVersion) -> Iterator[PlaygroundProcess]:
        """Yield a process that has loaded a version, or says in its form why it could not.

        Raises:
            HTTPException: 503, as many as may run at once are at work.
        """
        key = (workspace.root, project, version.number)
        with _slot(self._line, 0), _slot(self._slots, WAIT_S):
            process = self._idle_process(key) or PlaygroundProcess(workspace, project, version)
            try:
                yield process
            finally:
                self._keep(key, process)

    def close(self) -> None:
        """End the processes that wait."""
        with self._lock:
            processes = [*self._idle.values()]
            self._idle.clear()
        for process in processes:
            process.close()

    def _idle_process(self, key: tuple[Path, str, str]) -> PlaygroundProcess | None:
        with self._lock:
            process = self._idle.pop(key, None)
        if process and not process.echoes():
            process.close()
            return None
        return process

    def _keep(self, key: tuple[Path, str, str], process: PlaygroundProcess) -> None:
        surplus = []
        with self._lock:
            if process.is_ready and key not in self._idle:
                self._idle[key] = process
            else:
                surplus.append(process)
            if len(self._idle) > MOST_AT_ONCE:
                surplus.append(self._idle.pop(next(iter(self._idle))))
        for ended in surplus:
            ended.close()
