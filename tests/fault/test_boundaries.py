"""Ended at step boundaries and amid epochs, one after the other, the loop ends as if nobody had touched it."""

from __future__ import annotations

import signal
from typing import Any

import psutil
import pytest

from models.pipeline.steps import STEPS
from tests.fault.aftermath import assert_as_if_whole, assert_put_right, assert_survives, counted_trials, epochs_told
from tests.fault.conftest import TWO_RANKS
from tests.forked import PAUSE_AT
from tests.running import Loopline, assert_gone, assert_unlocked, eventually

pytestmark = pytest.mark.fault

NAMES = [step.name for step in STEPS]


KILLED = {"train": pytest.mark.wide, "promote": ()}
ENDED = {"judge": pytest.mark.wide}


AMID = {"search": ("trial-1", 2, pytest.mark.wide), "train": ("loop", 4, ())}
"""Of the steps that train: the run in MLflow, after how many of its epochs the loop is killed, and the test's mark."""


def each(daily: dict[str, Any]) -> list[Any]:
    """Every step; those that are not daily are for `make soak`."""
    assert daily.keys() <= {*NAMES}
    return [pytest.param(name, marks=daily.get(name, pytest.mark.soak)) for name in NAMES]


def with_epochs(steps: list[Any]) -> list[Any]:
    """The same, and after each step that trains a moment amid its epochs."""
    moments = {name: [pytest.param(name, True, id=f"amid-{name}", marks=marks)] for name, (*_, marks) in AMID.items()}
    begins = {step.values[0]: pytest.param(*step.values, False, marks=step.marks, id=step.values[0]) for step in steps}
    return [place for name, begin in begins.items() for place in (begin, *moments.get(name, []))]


WRITE_MOVE = """
import os
from pathlib import Path
from tasks.host import database
from tasks.state.champion_moves import moves_of, record
state = Path(os.environ["LOOPLINE_HOME"], ".loopline")
if not moves_of(state, "killed"):
    with database.writing(state) as connection:
        record(connection, "killed", 0, action="promote", before=None, after="1", by="one that was killed")
"""


@pytest.fixture(scope="module")
def killed(make_home) -> Loopline:
    return make_home("killed")


@pytest.fixture(scope="module")
def ended(make_home) -> Loopline:
    return make_home("ended", TWO_RANKS)


def stop_at(home: Loopline, name: str, line: str, number: int) -> set[str]:
    """Run until the line, send the signal, and see that nothing is left behind; gives the steps done by then."""
    before = home.records(name)
    run = home.start("run", name, **{PAUSE_AT: line})
    run.wait_for(line)
    paused = psutil.Process(run.process.pid)
    eventually(lambda: paused.status() == psutil.STATUS_STOPPED, f"it went on after {line!r}")
    stopped = run.kill(number)
    assert stopped.code == (128 + number if number == signal.SIGTERM else -number), stopped.err[-3000:]
    assert_gone(home.home)
    assert_unlocked(home.home, name)
    after = home.records(name)
    assert_survives(before, after)
    return {record["step"] for record in after.values()}


@pytest.mark.parametrize(("step", "amid"), with_epochs(each(KILLED)))
def test_sigkill_where_a_step_begins_and_amid_its_epochs(killed: Loopline, step: str, amid: bool):
    if amid:
        kill_amid(killed, "killed", *AMID[step][:2])
        return
    done = stop_at(killed, "killed", f"{step:<18} ...", signal.SIGKILL)
    assert done == set(NAMES[: NAMES.index(step)])
    if step == "promote":
        cut_the_promotion(killed)


def kill_amid(home: Loopline, name: str, run_name: str, num_epochs: int) -> None:
    """Kill the loop once so many epochs of a run are noted down."""
    before = home.records(name)
    run = home.start("run", name)
    run.wait_until(lambda: epochs_told(home, name, run_name) >= num_epochs)
    run.kill(signal.SIGKILL)
    assert_gone(home.home)
    assert_unlocked(home.home, name)
    assert_survives(before, home.records(name))


def cut_the_promotion(home: Loopline) -> None:
    """As if the kill had come between row and alias; the next run finishes it, as the last tests see."""
    home.python(WRITE_MOVE).ok()
    assert home.aliases("killed").keys() <= {"challenger"}, "the alias had not moved when it was cut"


@pytest.mark.wide
def test_sigkill_where_the_last_step_ends(killed: Loopline):
    assert stop_at(killed, "killed", f"{NAMES[-1]:<18} done", signal.SIGKILL) == set(NAMES)
    assert killed.aliases("killed") == {"champion": 1}


def test_killed_everywhere_it_ends_as_if_never_killed(killed: Loopline, whole: Loopline, api: str):
    before = killed.records("killed")
    killed("run", "killed").ok()
    assert_survives(before, killed.records("killed"))
    assert_put_right(killed, "killed", api)
    assert_as_if_whole(killed, "killed", whole)
    assert counted_trials(killed) == 3


@pytest.mark.parametrize("step", each(ENDED))
def test_sigterm_where_a_step_ends_closes_the_loop_at_once(ended: Loopline, step: str):
    done = stop_at(ended, "ended", f"{step:<18} done", signal.SIGTERM)
    assert step in done
    assert "RUNNING" not in ended.runs().values()
    assert ended.book("ended")["state"] == "failed"


@pytest.mark.wide
def test_ended_everywhere_it_ends_as_if_never_ended(ended: Loopline, whole_on_two_ranks: Loopline, api: str):
    before = ended.records("ended")
    ended("run", "ended").ok()
    assert_survives(before, ended.records("ended"))
    assert_put_right(ended, "ended", api)
    assert_as_if_whole(ended, "ended", whole_on_two_ranks)
