"""Killed where a step begins, a loop goes on from the state that Postgres holds, and ends as if never killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from models.pipeline.steps import STEPS
from tasks.host.database import FILE
from tasks.host.store_addresses import STATE_URL
from tests.fault.aftermath import assert_as_if_whole, assert_put_right
from tests.postgres import is_installed, new_database, postgres
from tests.running import Loopline

pytestmark = [
    pytest.mark.fault,
    pytest.mark.postgres,
    pytest.mark.soak,  # every day `test_no_shared_disk.py` kills a loop on Postgres
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as address:
        yield address


@pytest.mark.parametrize("step", [step.name for step in STEPS])
def test_a_loop_that_was_killed_goes_on(make_home, whole: Loopline, server: str, api: str, step: str):
    home = make_home(step)
    home.environ[STATE_URL] = new_database(server, step)
    run = home.start("run", step)
    run.wait_for(f"{step:<18} ...")
    assert run.kill().code == -signal.SIGKILL
    assert home.book(step)["state"] == "running"
    assert "was killed; marked as killed" in home("reap").ok().out
    home("run", step).ok()
    assert_put_right(home, step, api)
    assert_as_if_whole(home, step, whole)
    assert not (home.home / ".loopline" / FILE).exists()
