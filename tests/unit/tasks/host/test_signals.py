"""A program asked to end does so, whatever its main thread is doing."""

import signal
import subprocess
import sys

import pytest

from tasks.host.signals import StopRequest
from tests.children import started

WAITING = """
import signal
from tasks.host.signals import StopRequest
stop = StopRequest()
stop.on(signal.SIGTERM, signal.SIGINT)
print(flush=True)
while not stop.wait({timeout}):
    pass
"""
ASIDE = """
import threading
threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()
"""
ENDING = """
import signal, time
from tasks.host.signals import exit_on
exit_on(signal.SIGTERM)
try:
    print(flush=True)
    while True:
        time.sleep(0.1)
finally:
    print("tidied", flush=True)
"""


def test_it_is_set_once_and_for_good() -> None:
    stop = StopRequest()
    assert not stop.is_set()
    assert not stop.wait(0)
    stop.set()
    stop.set()
    assert stop.is_set()
    assert stop.wait(3600)
    assert stop.wait(3600)


def ends_on(code: str, number: signal.Signals) -> tuple[int, bytes]:
    with started([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        said = process.communicate(timeout=30)[0]
        return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("timeout", [0, 3600])
def test_a_signal_ends_the_wait(timeout: int, number: signal.Signals) -> None:
    """`threading.Event` hung in about half of the cases without a timeout."""
    assert ends_on(WAITING.format(timeout=timeout), number) == (0, b"")


def test_a_signal_that_another_thread_gets_ends_the_wait_too() -> None:
    """As does one that comes when the interpreter has looked for signals and the system call has not begun."""
    code = WAITING.replace("print(flush=True)", ASIDE).format(timeout=3600)
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0


def test_a_program_that_ends_at_once_tidies_up() -> None:
    assert ends_on(ENDING, signal.SIGTERM) == (0, b"tidied\n")
