"""Versions are tried in few processes: each is used again, and what becomes of one that ends is said."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.exceptions import HTTPException

from models.serving.playground_form import PlaygroundRequest
from models.serving.registry import RegisteredVersion
from tasks.dashboard import playground_pool
from tasks.dashboard.playground_pool import PlaygroundPool
from tasks.host.workspace import Workspace

PYTHON = """#!{python} -S
import os, sys, time
sys.stdin.readline()
print('{{}}', flush=True)
for line in sys.stdin:
    if not line.strip():
        print(flush=True)
        continue
    if "end" in line:
        sys.exit(3)
    if "killed" in line:
        print('{{"trou', end="", flush=True)
        os.kill(os.getpid(), 9)
    if "sleep" in line:
        time.sleep(60)
    print('{{"trouble": "' + str(os.getpid()) + '"}}', flush=True)
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlaygroundPool]:
    """A pool of stand-ins that answer with their pid, end, or sleep, as they are asked."""
    program = tmp_path / "python"
    program.write_text(PYTHON.format(python=sys.executable))
    program.chmod(0o700)
    monkeypatch.setattr(playground_pool.sys, "executable", str(program))
    made = PlaygroundPool()
    yield made
    made.close()


def pid(pool: PlaygroundPool, workspace: Workspace, number: str, cell: str = "") -> str:
    """What answers a request to a version."""
    with pool.process(workspace, "tiny", RegisteredVersion(number=number)) as process:
        return process.answer(PlaygroundRequest(cells={"x": cell})).trouble


def test_a_version_has_one_process_and_the_last_two_stay(pool: PlaygroundPool, workspace: Workspace) -> None:
    first, second = pid(pool, workspace, "1"), pid(pool, workspace, "2")
    assert (pid(pool, workspace, "1"), pid(pool, workspace, "2")) == (first, second)
    pid(pool, workspace, "3")
    assert pid(pool, workspace, "2") == second
    assert pid(pool, workspace, "1") != first


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_one_that_was_stopped_or_ended_while_it_waited_is_replaced(
    pool: PlaygroundPool, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(playground_pool, "ECHO_S", 0.05)
    first = pid(pool, workspace, "1")
    os.kill(int(first), number)
    assert pid(pool, workspace, "1").isdecimal()
    assert pid(pool, workspace, "1") != first


def test_no_more_than_two_are_tried_at_once(
    pool: PlaygroundPool, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playground_pool, "WAIT_S", 0.01)
    same = RegisteredVersion(number="1")
    with pool.process(workspace, "tiny", same) as one, pool.process(workspace, "tiny", same) as other:
        assert one is not other
        with pytest.raises(HTTPException, match="ask again"), pool.process(workspace, "tiny", same):
            pass
    assert pid(pool, workspace, "1")


def test_a_full_line_is_refused_at_once_since_each_waiting_request_holds_a_thread(
    pool: PlaygroundPool, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    del pool
    monkeypatch.setattr(playground_pool, "MOST_IN_LINE", 1)
    short = PlaygroundPool()
    at_work = short.process(workspace, "tiny", RegisteredVersion(number="1"))  # of two slots one is free
    with at_work, pytest.raises(HTTPException, match="ask again"):
        pid(short, workspace, "1")
    assert pid(short, workspace, "1")
    short.close()


def test_a_process_that_ends_or_takes_too_long_is_a_sentence(
    pool: PlaygroundPool, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "ended with 3: the log" in pid(pool, workspace, "1", "end")
    assert "was killed" in pid(pool, workspace, "1", "killed"), "half a line is no answer"
    monkeypatch.setattr(playground_pool, "ANSWER_S", 0.05)
    assert "took longer than 0.05 s" in pid(pool, workspace, "1", "sleep")
