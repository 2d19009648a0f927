"""The process that answers: each call gets its own answer, and nothing is left of it."""

from __future__ import annotations

import io
import os
import random
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from loopline import LooplineError, run, session
from loopline.session import PROGRAM, Session, find_program
from tests.cheap_session import write_program

CHANGED = 'echo \'{"protocol": 99, "version": "9.9"}\'; cat >/dev/null'


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_program(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def cheap(program: Path) -> Iterator[Session]:
    running = Session(str(program))
    yield running
    running.end()


def interrupted(running: Session, question: dict[str, object], wait: Callable[[], None]) -> bool:
    """Ask, and press Ctrl-C after a wait; return whether it came before the answer."""

    def press() -> None:
        wait()
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    is_answered = False
    try:
        presser.start()
        running.ask(question)
        is_answered = True
        presser.join()
        time.sleep(1)
    except KeyboardInterrupt:
        return not is_answered
    raise AssertionError("Ctrl-C was lost")


def test_a_call_gets_its_answer(cheap: Session) -> None:
    assert cheap.ask({"call": "echo", "value": "ä"})["value"] == "ä"


def test_an_error_is_the_products_message(cheap: Session) -> None:
    with pytest.raises(LooplineError, match=r"^lr: got this, expected that: do so$"):
        cheap.ask({"call": "refuse", "what": "lr"})


def test_a_defect_ends_the_call_and_not_the_session(cheap: Session) -> None:
    with pytest.raises(LooplineError, match=r"ZeroDivisionError: .*please report it"):
        cheap.ask({"call": "fail"})
    assert cheap.ask({"call": "echo", "value": 1})["value"] == 1


def test_after_ctrl_c_the_next_call_gets_its_own_answer_100_of_100(cheap: Session) -> None:
    moments = random.Random(0)
    early = 0
    for number in range(100):
        question = {"call": "echo", "value": -number, "seconds": moments.choice((0, 0.004))}
        early += interrupted(cheap, question, partial(time.sleep, moments.uniform(0, 0.006)))
        assert cheap.ask({"call": "echo", "value": number})["value"] == number
    assert 20 < early <= 100
    assert cheap.is_alive()


@pytest.mark.parametrize(("argument", "code"), [("hearing", -signal.SIGTERM), ("deaf", -signal.SIGKILL)])
def test_ctrl_c_ends_a_command(cheap: Session, capfd: pytest.CaptureFixture[str], argument: str, code: int) -> None:
    lines: list[str] = []

    def wait_for_its_line() -> None:
        while not lines:
            lines.extend(capfd.readouterr().err.splitlines())
            time.sleep(0.01)

    assert interrupted(cheap, {"call": "loop", "arguments": [argument]}, wait_for_its_line)
    assert not psutil.pid_exists(int(lines[-1].split()[-1]))
    assert cheap.ask({"call": "echo", "value": code})["value"] == code


def test_threads_are_answered_in_turn(cheap: Session) -> None:
    answers: dict[int, int] = {}

    def ask(number: int) -> None:
        answers[number] = cheap.ask({"call": "echo", "value": number})["value"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: number for number in range(8)}


def test_what_a_kernel_sets_for_its_own_python_stays_there(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    running = Session(str(program))
    try:
        assert "MPLBACKEND" not in running.ask({"call": "echo", "value": 0})["environment"]
    finally:
        running.end()


def test_a_process_that_was_killed_leaves_none(program: Path) -> None:
    """Also where another process holds its end of the pipe open, as forks of a notebook do."""
    asks = (
        "import os, subprocess, sys; from loopline.session import PROGRAM, Session\n"
        "running = Session(os.environ[PROGRAM])\n"
        "holder = [sys.executable, '-W', 'ignore', '-c', 'import time; time.sleep(30)']\n"
        "subprocess.Popen(holder, pass_fds=[running._process.stdin.fileno()])\n"
        "running.ask({'call': 'loop', 'arguments': ['deaf']})\n"
    )
    environment = {**os.environ, PROGRAM: str(program)}
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", asks], env=environment, stderr=subprocess.PIPE, text=True
    )
    family: list[psutil.Process] = []
    try:
        assert parent.stderr
        assert "search" in parent.stderr.readline()
        family = psutil.Process(parent.pid).children(recursive=True)
        fork = next(
            process for process in family if process.cmdline()[:1] == [sys.executable] and "-W" in process.cmdline()
        )
        others = [process for process in family if process != fork]
        assert len(others) == 2
        parent.kill()
        parent.wait()
        _, alive = psutil.wait_procs(others, 5)
        assert not alive
    finally:
        parent.kill()
        for process in family:
            if process.is_running():
                process.kill()
        if parent.stderr:
            parent.stderr.close()


def process_of_the_session() -> subprocess.Popen[bytes]:
    with session.session() as running:
        return running._process


def test_the_session_of_another_folder_or_environment_is_another(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROGRAM, str(program))
    first = process_of_the_session()
    assert process_of_the_session() is first
    monkeypatch.chdir(tmp_path)
    second = process_of_the_session()
    assert second is not first
    assert first.poll() == 0
    second.kill()
    second.wait()
    assert session.ask({"call": "echo", "value": 3})["value"] == 3
    session.end()


def test_a_session_in_use_outlives_a_change_of_the_environment(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread's loop, or a server, is not ended by another call."""
    monkeypatch.setenv(PROGRAM, str(program))
    with session.session() as first:
        monkeypatch.setenv("CHANGED", "1")
        assert session.ask({"call": "echo", "value": 1})["environment"]["CHANGED"] == "1"
        assert "CHANGED" not in first.ask({"call": "echo", "value": 2})["environment"]
    assert not first.is_alive()
    session.end()


def test_ctrl_c_before_the_program_answers_leaves_no_process(program: Path) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    class Interrupted(Session):
        def _next(self, timeout_s: float | None = None) -> dict[str, object] | None:
            begun.append(self._process)
            signal.raise_signal(signal.SIGINT)
            return super()._next(timeout_s)

    with pytest.raises(KeyboardInterrupt):
        Interrupted(str(program))
    assert begun[0].poll() == -signal.SIGKILL


def test_a_fork_begins_a_session_of_its_own_while_a_thread_begins_one(program: Path) -> None:
    forks = (
        "import os; from loopline import session\n"
        "with session._lock:\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        value = session.ask({'call': 'echo', 'value': 7})['value']\n"
        "        session.end()\n"
        "        os._exit(value)\n"
        "os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    environment = {**os.environ, PROGRAM: str(program)}
    ended = subprocess.run([sys.executable, "-c", forks], env=environment, check=False, timeout=60)
    assert ended.returncode == 7


def test_messages_of_many_megabytes_are_passed(cheap: Session) -> None:
    value = "x" * 30_000_000
    assert cheap.ask({"call": "echo", "value": value})["value"] == value


def test_progress_that_nobody_reads_is_no_fault_of_the_program(cheap: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with monkeypatch.context() as patch, os.fdopen(writing, "wb", 0) as pipe:
        patch.setattr(sys, "stderr", io.TextIOWrapper(pipe, write_through=True))
        with pytest.raises(BrokenPipeError):
            cheap.ask({"call": "loop", "arguments": ["hearing"]})
    assert cheap.ask({"call": "echo", "value": 5})["value"] == 5


@pytest.mark.parametrize("value", [{1, 2}, object(), [Path("x")]])
def test_a_setting_that_is_no_plain_data_is_refused(value: object) -> None:
    with pytest.raises(LooplineError, match=r"^settings: search\.trials: got .*, expected a number, a text"):
        run(name="churn", settings={"search.trials": value})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CHANGED, r"is Loopline 9\.9 with protocol 99, expected \d+: .*`pip install \"\$\(.*loopline client\)\"`"),
        ("echo 'no module flows' >&2; exit 1", r"does not answer \(no module flows\): install Loopline again"),
        ("echo 1", r"does not answer \(it ended without a word\): install Loopline again"),
        ("echo hello", r"does not answer \(it ended without a word\): install Loopline again"),
    ],
)
def test_a_program_that_does_not_answer_is_one_line_with_its_cure(tmp_path: Path, text: str, message: str) -> None:
    program = write_program(tmp_path, text)
    with pytest.raises(LooplineError, match=message) as caught:
        Session(str(program))
    assert "\n" not in str(caught.value)
    assert shlex.quote(str(program)) in str(caught.value)


def test_a_process_that_ends_is_an_error_of_this_call_alone(program: Path) -> None:
    running = Session(str(program))
    threading.Timer(0.2, running._process.kill).start()
    with pytest.raises(LooplineError, match=r"ended amid this call \(.*\): call again, which begins it anew$"):
        running.ask({"call": "echo", "value": 1, "seconds": 20})
    assert not running.is_alive()


def test_no_program_is_one_line_with_its_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(PROGRAM, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(LooplineError, match=f"no such program on PATH: install it, or name it by {PROGRAM}"):
        find_program()
    program = write_program(tmp_path)
    assert find_program() == str(program)
    monkeypatch.setenv(PROGRAM, "/not/there")
    with pytest.raises(LooplineError, match=f"{PROGRAM}: got /not/there, which is no program: correct"):
        find_program()
