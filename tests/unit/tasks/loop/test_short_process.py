"""A short process is started once at a time, and after a pause that doubles where the last one failed."""

import time

import pytest

from tasks.host.workspace import Workspace
from tasks.loop import short_process
from tasks.loop.short_process import ShortProcess

FAILS, SUCCEEDS = "json.tool", "platform"
"""Modules of Python that exit with 1 and with 0, whatever a workspace's folder and a project mean to them."""


def ended(process: ShortProcess) -> None:
    while process.is_running:
        time.sleep(0.01)


def test_no_second_process_is_started_beside_a_living_one(workspace: Workspace) -> None:
    process = ShortProcess(workspace, SUCCEEDS)
    assert process.is_free
    process.start(["a"])
    assert not (process.is_running and process.is_free)
    ended(process)
    assert process.is_free


def test_the_pause_after_a_failed_process_doubles_and_a_good_one_ends_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short_process, "LEAST_PAUSE_S", 0.3)
    process = ShortProcess(workspace, FAILS)
    pauses = []
    for _ in range(2):
        process.start(["a"])
        ended(process)
        assert not process.is_free
        began = time.monotonic()
        while not process.is_free:
            time.sleep(0.01)
        pauses.append(time.monotonic() - began)
    assert 0.2 < pauses[0] < pauses[1]
    process.module = SUCCEEDS
    process.start(["a"])
    ended(process)
    assert process.is_free
