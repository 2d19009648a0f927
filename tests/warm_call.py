"""What stands for DVC's program in tests: it has the warm parent run it (tests/warm.py) and ends as that does.

Started with `-S`: nothing but the standard library is imported.
"""

import os
import signal
import socket
import struct
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from models.distributed.forkserver import receive, send

CODE = struct.Struct("<i")
LOST = -signal.SIGKILL  # a command dies with its server


def begin(
    parent: socket.socket,
    program: str,
    arguments: tuple[str, ...],
    environ: dict[str, str],
    cwd: str,
    files: tuple[int, ...],
) -> tuple[int, int]:
    """Have the parent run a program with these files: its pid, and a descriptor for `exit_code_of` to read."""
    mine, theirs = os.pipe()
    try:
        send(parent, (program, arguments, environ, cwd), (*files, theirs))
        pid, _ = receive(parent)
    except BaseException:
        os.close(mine)
        raise
    finally:
        os.close(theirs)
    return pid, mine


def exit_code_of(descriptor: int) -> int:
    """The exit code, once the process ends; negative: the signal that ended it."""
    content = os.read(descriptor, CODE.size)
    os.close(descriptor)
    return CODE.unpack(content)[0] if content else LOST


def call(address: str, program: str, *arguments: str) -> None:
    """Lend it our files, our environment and our folder, and end with its code or by its signal.

    Should we be killed, the parent sees the connection close and kills it.
    """
    parent = socket.socket(socket.AF_UNIX)
    parent.connect(address)
    call_over(parent, program, *arguments)


def call_over(parent: socket.socket, program: str, *arguments: str) -> None:
    """The same over a connection to the parent."""
    with parent:
        _, descriptor = begin(parent, program, arguments, dict(os.environ), str(Path.cwd()), (0, 1, 2))
        code = exit_code_of(descriptor)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    call(*sys.argv[1:])
