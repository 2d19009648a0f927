"""Killed in the middle of things: epochs on two ranks, ranks, their fork server."""

from __future__ import annotations

import contextlib
import random
import signal
import time

import psutil
import pytest

from tests.conftest import SEED
from tests.fault.aftermath import LOOK_S, assert_as_if_whole, assert_put_right, assert_survives, epochs_told
from tests.fault.conftest import TWO_RANKS
from tests.running import Loopline, Running, assert_gone, assert_unlocked

pytestmark = pytest.mark.fault


def kill(home: Loopline, name: str, run: Running) -> None:
    run.kill(signal.SIGKILL)
    assert_gone(home.home)
    assert_unlocked(home.home, name)


def killed_rank(run: Running, draw: random.Random) -> bool:
    """Whether a rank was there to be killed: between two starts of the ranks there is none."""
    ranks = run.ranks()
    with contextlib.suppress(psutil.NoSuchProcess):
        if ranks:
            draw.choice(ranks).kill()
            return True
    return False


@pytest.mark.wide
def test_a_kill_in_the_middle_of_epochs_on_two_ranks_and_of_ranks(make_home, whole_on_two_ranks: Loopline, api: str):
    """The loop is killed, then ended, by signals; in its last run, ranks are killed, and start again within it.

    Each alone is tried with every change: a kill amid epochs in `test_boundaries.py`, a killed rank and a killed
    process above two ranks in `tests/launcher_contract.py`, the end by a signal in `tests/rules/test_pages_agree.py`.
    """
    home = make_home("ranks", TWO_RANKS)
    draw = random.Random(SEED)
    run = home.start("run", "ranks")
    run.wait_until(lambda: epochs_told(home, "ranks", "loop") >= 2)
    kill(home, "ranks", run)
    run = home.start("run", "ranks")
    run.wait_until(lambda: [*(home.state("ranks") / "work" / "train").glob("*/checkpoints/step-*")])
    run.kill(signal.SIGTERM)
    assert_gone(home.home)
    before = home.records("ranks")
    run = home.start("run", "ranks")
    for enough in (4, 6):
        run.wait_until(lambda enough=enough: epochs_told(home, "ranks", "loop") >= enough and killed_rank(run, draw))
    assert run.ended().ok()
    assert_survives(before, home.records("ranks"))
    trained = home.record("ranks", "train")["result"]
    assert trained["resumed_from"], "training goes on from its checkpoint"
    assert trained["restarts"] >= 1
    assert_put_right(home, "ranks", api)
    assert_as_if_whole(home, "ranks", whole_on_two_ranks)


@pytest.mark.soak
def test_a_fork_server_that_is_killed_as_a_trial_begins_costs_no_trial(make_home, whole: Loopline, api: str):
    """Meanwhile, another run of the project is refused."""
    home = make_home("nursery")
    run = home.start("run", "nursery")
    run.wait_until(run.fork_server)
    fork_server = run.fork_server()
    fork_server.suspend()  # so that the first trial waits for it
    run.wait_until(lambda: time.sleep(LOOK_S) or any(line["run"] == "trial-0" for line in home.outbox("nursery")))
    second = home("run", "nursery")
    assert second.code == 1
    assert "a loop of nursery runs already" in second.err
    assert str(run.process.pid) in second.err
    assert "Traceback" not in second.err
    time.sleep(0.5)
    fork_server.kill()
    assert run.ended().ok()
    assert_put_right(home, "nursery", api)
    assert_as_if_whole(home, "nursery", whole)
