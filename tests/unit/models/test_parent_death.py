"""A process that is tied to another one is never without it."""

import os
import subprocess
import sys

from models.parent_death import ends_with_parent
from tests.children import started


def test_it_becomes_the_command():
    done = subprocess.run(
        ends_with_parent(["-c", "import os; print(os.getppid())"]), stdout=subprocess.PIPE, text=True, check=True
    )
    assert int(done.stdout) == os.getpid()


def test_whose_parent_died_before_it_began_ends_at_once():
    interpreter, options, file, _, *rest = ends_with_parent(["-c", "print('it runs')"])
    ended = subprocess.run([interpreter, options, file, "1", *rest], stdout=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")


PARENT = """
import signal, subprocess
from models.parent_death import ends_with_parent
code = "import signal; print(flush=True); signal.pause()"
child = subprocess.Popen(ends_with_parent(["-c", code]))
signal.pause()
"""


def test_the_death_of_the_parent_ends_it():
    """Its standard output, which the child shares, is at its end when both are gone."""
    with started([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"\n"
        parent.kill()
        assert parent.communicate(timeout=30)[0] == b""
