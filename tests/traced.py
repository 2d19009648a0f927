"""What a process asks of the system, seen from outside: strace's record of chosen calls, of all its descendants too."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

NETWORK = ("connect", "sendto", "sendmsg", "sendmmsg")
"""The calls by which a process speaks to another."""
_STRING = re.compile(rb'"((?:\\x[0-9a-f]{2})+)"')
_QUESTION = re.compile(
    rb"^..\x01[\x00\x20]\x00\x01.{6}((?:[\x01-\x3f][^\x00]{1,63})+)\x00\x00[\x01\x1c\x41]\x00\x01", re.S
)
"""A question of DNS for an address: RFC 1035, section 4.1."""
_ADDRESS = re.compile(rb'sin6?_port=htons\((\d+)\).*?inet_(?:addr\(|pton\(AF_INET6, )"((?:\\x[0-9a-f]{2})+)"')
_OPENED = re.compile(rb'^\d+ +(\d+\.\d+) open(?:at)?\([^"]*"((?:\\x[0-9a-f]{2})+)"(.*)$')
_LOOPBACK = ("127.", "::1", "::ffff:127.", "0.0.0.0")
_DNS, _SORTED = 53, 0
_PR_SET_PTRACER = 0x59616D61
"""Of Yama, which else lets a process trace its own descendants alone; other kernels refuse it, and need it not."""


@functools.cache
def can_trace() -> bool:
    """Whether strace is installed, and may trace here."""
    command = ["strace", "-f", "-e", "trace=connect", "-o", "/dev/null", "true"]
    return bool(shutil.which("strace")) and subprocess.run(command, capture_output=True, check=False).returncode == 0


def traced(calls: tuple[str, ...], trace: Path) -> list[str]:
    """Return the first words of a command whose calls of these names, with strings in hexadecimal, go to `trace`.

    A signal to strace goes on to the command (`-I2`).
    """
    return [
        "strace",
        "-f",
        "-I2",
        "--seccomp-bpf",
        "-xx",
        "-s",
        "400",
        "-e",
        f"trace={','.join(calls)}",
        "-o",
        str(trace),
    ]


def network_traced(trace: Path) -> list[str]:
    """Return the first words of a command whose connections and messages go to `trace`."""
    return traced(NETWORK, trace)


def wait_for_tracer() -> None:
    """Let any process trace this one, whose child the tracer is not, and stop until it does (`attached`)."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1))
    os.kill(os.getpid(), signal.SIGSTOP)


@contextlib.contextmanager
def attached(pid: int, calls: tuple[str, ...], trace: Path, *options: str) -> Iterator[None]:
    """Trace a process that waits for it (`wait_for_tracer`), and its later descendants, until they have ended.

    For a process that has imported its modules: each of its calls is slower than under `traced`.
    """
    command = [*(word for word in traced(calls, trace) if word != "--seccomp-bpf"), *options, "-p", str(pid)]
    _wait_for_status(pid, "State", "T")
    strace = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        _wait_for_status(pid, "TracerPid", str(strace.pid))
        os.kill(pid, signal.SIGCONT)
        yield
        strace.wait(30)
    finally:
        strace.kill()
        strace.wait()


def _wait_for_status(pid: int, field: str, begin: str) -> None:
    deadline = time.monotonic() + 30
    while not re.search(rf"^{field}:\t{begin}", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE):
        assert time.monotonic() < deadline, f"{field} of {pid} is not {begin}"
        time.sleep(0.01)


def files_read(trace: Path) -> list[tuple[float, Path]]:
    """Return the files that were opened to be read, each with the Unix time of the call, from a trace of `-ttt`.

    A call that failed is left out, unless another process spoke in between.
    """
    found = (_OPENED.match(line) for line in trace.read_bytes().splitlines())
    opened = [match for match in found if match and b"O_WRONLY" not in match[3] and b"= -1" not in match[3]]
    return [(float(match[1]), Path(os.fsdecode(_bytes(match[2])))) for match in opened]


def places_outside(trace: Path) -> set[str]:
    """Return the names that were looked up and the addresses that were spoken to, but for this machine's own."""
    lines = trace.read_bytes().splitlines()
    names = {name for line in lines for name in _names(line)} - {socket.gethostname()}
    return names | {place for line in lines for place in _addresses(line)}


def _names(line: bytes) -> list[str]:
    questions = [_QUESTION.match(_bytes(found)) for found in _STRING.findall(line)]
    return [_name(question[1]) for question in questions if question]


def _addresses(line: bytes) -> list[str]:
    found = [(int(port), _bytes(address).decode()) for port, address in _ADDRESS.findall(line)]
    far = [(port, address) for port, address in found if not address.startswith(_LOOPBACK)]
    return [f"{address}:{port}" for port, address in far if port not in (_DNS, _SORTED)]


def _bytes(hexadecimal: bytes) -> bytes:
    return bytes.fromhex(hexadecimal.replace(rb"\x", b"").decode())


def _name(labels: bytes) -> str:
    parts = []
    while labels:
        parts.append(labels[1 : 1 + labels[0]].decode("ascii", "replace"))
        labels = labels[1 + labels[0] :]
    return ".".join(parts)
