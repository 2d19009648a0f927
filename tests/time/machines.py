"""Processes of other machines: each with a workspace folder and a pid namespace of its own, and all with one host name.

A process is forked off the warm parent of the tests' commands, so it costs no imports.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests import warm
from tests.time.pausing import PAUSED
from tests.time.points import Point

_NEW_NAMESPACES = 0x20000000 | 0x00020000  # CLONE_NEWPID | CLONE_NEWNS
_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
CODE = "from tests.time.process import main; main({arguments!r})"
CODE_THAT_TRAINS = f"{CODE}  # RankPool: the warm parent keeps ranks ready for it"
CLOCK = "FAKETIME"
"""The variable by which libfaketime moves the clock of a process."""
SHORT_TTL_S = 1.0
"""How long a lease of such a process lives without a renewal: what takes minutes in life takes a second here."""


@functools.cache
def has_namespaces() -> bool:
    """Whether this account may make pid namespaces."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False


needs_namespaces = pytest.mark.skipif(
    not has_namespaces(), reason="a machine of its own is a pid namespace here, and `unshare --pid` needs root"
)


def enter_namespace() -> None:
    """Go on in a child with its own pid namespace and /proc; this process hands on its exit code.

    It prints the child's pid as this machine has it, as the first line.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _done(libc.unshare(_NEW_NAMESPACES))
    if pid := os.fork():
        print(pid, flush=True)
        os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    _done(libc.mount(b"none", b"/", None, _PRIVATE, None))
    _done(libc.mount(b"proc", b"/proc", b"proc", 0, None))


def _done(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Process:
    """A process that a test started on another machine.

    Attributes:
        lines: What it has printed so far.
    """

    def __init__(self, environ: Mapping[str, str], act: str, point: Point | None, **options: object) -> None:
        answers, self._answers = os.pipe()
        printed, prints = os.pipe()
        arguments = {"act": act, "point": point, "is_apart": has_namespaces(), **options}
        code = (CODE if arguments["is_apart"] else CODE_THAT_TRAINS).format(arguments=json.dumps(arguments))
        files = answers, prints, 2
        self._process: warm.Started
        if CLOCK in environ:  # the library that moves the clock is loaded as a process starts
            self._process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=answers, stdout=prints, env=environ, cwd=warm.ROOT
            )
        else:
            self._process = warm.server().start("-c", (code,), dict(environ), warm.ROOT, files)
        os.close(answers)
        os.close(prints)
        self._printed = os.fdopen(printed)
        self.lines: list[str] = []
        self._handle = os.pidfd_open(int(self._printed.readline()))  # its pid may be another's once it has ended

    def wait_at(self, point: Point) -> None:
        """Wait until it comes to the point, and stop all its threads there."""
        self.wait_for(f"{PAUSED}{point.name}")
        self.stop()

    def wait_for(self, line: str) -> None:
        """Wait for a line that begins so."""
        for text in self._printed:
            self.lines.append(text.rstrip())
            if text.startswith(line):
                return
        raise AssertionError(f"it ended before {line!r}: {self.lines}")

    def stop(self) -> None:
        """Stop it and all its threads, as a laptop's lid or a moved virtual machine does."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on from its point."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._answers, b"\n")
        self._send(signal.SIGCONT)

    def ended(self) -> list[str]:
        """Let it go on, wait for its end, and return all that it printed."""
        self.go_on()
        self.lines += [line.rstrip() for line in self._printed]
        self._process.wait(60)
        return self.lines

    def close(self) -> None:
        """Kill it, if it has not ended."""
        self._send(signal.SIGKILL)
        self._process.kill()
        self._process.wait(60)
        self._printed.close()
        os.close(self._answers)
        os.close(self._handle)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            signal.pidfd_send_signal(self._handle, number)


def _clock(ahead_s: float) -> dict[str, str]:
    """The environment of a process whose clock is wrong; nothing but its calendar time is moved."""
    if not ahead_s:
        return {}
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        pytest.skip("a wrong clock needs libfaketime: install Debian's package `faketime`")
    return {CLOCK: f"{ahead_s:+g}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "LD_PRELOAD": str(library)}


class Machine:
    """Another machine: a workspace folder of its own, and the stores that this process's environment names.

    Args:
        home: The workspace's root.
        clock_s: How far its clock is ahead of this one's, in seconds.
    """

    def __init__(self, home: Path, clock_s: float = 0.0) -> None:
        (home / "projects").mkdir(parents=True, exist_ok=True)
        self.home = home
        self._environ = {**os.environ, "LOOPLINE_HOME": str(home), **_clock(clock_s)}

    @contextlib.contextmanager
    def process(self, act: str, point: Point | None = None, **options: object) -> Iterator[Process]:
        """Start an act of `acts.py` there; it pauses at the point; at the end of the block it is killed.

        Args:
            act: The name of the act.
            point: Where it pauses.
            options: `ttl_s`, for how long its lease lives without renewals; `arguments` of the act; `is_apart`, false
                for a process that trains: its ranks are started by the warm parent, in this namespace.
        """
        process = Process(self._environ, act, point, **{"ttl_s": SHORT_TTL_S, **options})
        try:
            yield process
        finally:
            process.close()


Elsewhere = Callable[..., Machine]
"""Makes a machine of this name; `clock_s` is how far its clock is ahead."""
