"""What stands for DVC's program in tests: it has the warm parent run it (tests/warm.py) and ends as that does.

Started with `-S`: nothing but the standard library is imported.
"""

import os
import signal
import socket
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from models.training.nursery import receive, send


def call(address: str, program: str, *arguments: str) -> None:
    """Lend it our files, our environment and our folder, and end with its code or by its signal.

    Should we be killed, the parent sees the connection close and kills it.
    """
    with socket.socket(socket.AF_UNIX) as parent:
        parent.connect(address)
        ended, ending = os.pipe()
        send(parent, (program, arguments, dict(os.environ), str(Path.cwd())), (0, 1, 2, ending))
        os.close(ending)
        receive(parent)
        said = os.read(ended, 4)
    code = struct.unpack("<i", said)[0] if said else -signal.SIGKILL
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    call(*sys.argv[1:])
