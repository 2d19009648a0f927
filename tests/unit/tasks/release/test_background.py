"""The processes beside a follower: one shadow, the one that is wanted; a return is told once at a time."""

import subprocess
import sys
import time

import pytest

from tasks.release import background
from tasks.release.background import Background
from tasks.state import shadows
from tests.serving import crown
from tests.unit.tasks.release.test_shadow import log

LONGEST_S = 60.0


def until(holds):
    deadline = time.monotonic() + LONGEST_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def beside(workspace):
    found = Background(workspace, "tiny")
    yield found
    found.end()


def test_a_shadow_answers_from_the_log_until_it_is_not_wanted_any_more(workspace, beside):
    crown(workspace, "tiny", "2")
    state = workspace.state / "projects" / "tiny"
    log(state, ["a", "b"])
    beside.shadow("2")
    process = beside._shadow
    until(lambda: shadows.place_of(state, "2") == 1)
    beside.shadow("2")
    assert beside._shadow is process, "it runs already"
    assert shadows.answers(state, "2")[0] == ["a", "b"]
    beside.shadow(None)
    assert process.returncode is not None
    assert beside._shadow is None


def ending(code):
    return lambda *_: subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"])


@pytest.mark.parametrize(("code", "told"), [(1, 2), (0, 2), (background.REFUSED, 1)])
def test_the_registry_is_told_again_until_it_heard_or_refused(beside, monkeypatch, code, told):
    monkeypatch.setattr(background, "AGAIN_S", 0.0)
    started = []
    monkeypatch.setattr(beside, "_start", lambda *given: started.append(given) or ending(code)())
    beside.give_back("2", "errors")
    beside.give_back("2", "errors")
    assert started == [("tasks.release.registry_jobs", "rollback", "2", "errors")], "one at a time"
    beside._giving.wait()
    beside.give_back("2", "errors")
    assert len(started) == told
    if beside._giving is not None:
        beside._giving.wait()
    beside.forget(set())
    beside.give_back("2", "errors")
    assert len(started) == told + 1, "another return is told anew"
    beside._giving.wait()


def test_between_two_tries_there_is_a_pause(beside, monkeypatch):
    started = []
    monkeypatch.setattr(beside, "_start", lambda *given: started.append(given) or ending(1)())
    for _ in range(3):
        beside.give_back("2", "errors")
        if beside._giving is not None:
            beside._giving.wait()
    assert len(started) == 1
