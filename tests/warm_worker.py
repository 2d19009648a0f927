"""The Python of pytest's workers: `--tx 'popen//python=.venv/bin/python -m tests.warm_worker'`.

A worker is forked from the warm parent of the commands that it will start (`tests/warm.py`): it imports nothing of the
twelve seconds that all tests' imports take, and shares their memory with the other workers.
"""

from __future__ import annotations

import os
import sys

from tests import warm
from tests.environment import forget_the_user
from tests.warm_call import call_over


def main() -> None:
    """Become what pytest asks of a Python: `-u -c CODE`; whoever asks is the process above."""
    unbuffered, *program = sys.argv[1:]
    assert unbuffered == "-u", sys.argv
    address = warm.address_of(os.getppid())
    forget_the_user()
    os.environ[warm.ADDRESS] = address
    call_over(warm.connect(address), *program)


if __name__ == "__main__":
    main()
