"""Two hundred kills at moments drawn by lot, with the state in SQLite and in Postgres: each loop ends as if whole."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from tasks.host.store_addresses import STATE_URL
from tests.conftest import SEED
from tests.fault.aftermath import assert_as_if_whole, assert_put_right, assert_survives
from tests.postgres import is_installed, new_database, postgres
from tests.running import Loopline, assert_gone, assert_unlocked

pytestmark = [pytest.mark.fault, pytest.mark.soak, pytest.mark.timeout(900)]

TURNS = 25
KILLS_A_TURN = 4
LONGEST_RUN_S = 6.0
NEEDS_POSTGRES = [pytest.mark.postgres, pytest.mark.skipif(not is_installed(), reason="Postgres is not installed")]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=NEEDS_POSTGRES)])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the state's server; empty for a file of the workspace."""
    if request.param == "sqlite":
        yield ""
        return
    with postgres() as address:
        yield address


def kills_until_it_ends(home: Loopline, name: str, draw: random.Random) -> int:
    """Run the loop and kill it, or any process under it, by SIGKILL or SIGTERM, until it ends by itself."""
    kills = 0
    while True:
        before = home.records(name)
        run = home.start("run", name)
        longest_s = LONGEST_RUN_S * (1 + kills / KILLS_A_TURN)  # a step of a slow machine takes longer than one draw
        wait_s, number = draw.uniform(0.3, longest_s), draw.choice([signal.SIGKILL, signal.SIGTERM])
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and run.process.poll() is None:
            time.sleep(0.02)
        if run.process.poll() is not None:
            assert run.ended().ok()
            return kills
        family = psutil.Process(run.process.pid).children(recursive=True)
        if family and draw.random() < 0.3:
            draw.choice(family).send_signal(number)  # the run may get over it, or say why not
            kills += 1
            time.sleep(0.5)
        run.kill(number)
        kills += 1
        assert_gone(home.home)
        assert_unlocked(home.home, name)
        assert_survives(before, home.records(name))


@pytest.mark.parametrize("turn", range(TURNS))
def test_killed_by_lot_a_loop_ends_as_if_never_killed(make_home, whole: Loopline, server: str, api: str, turn: int):
    draw, kills, loops = random.Random(f"{SEED}/{bool(server)}/{turn}"), 0, 0
    while kills < KILLS_A_TURN:
        name = f"drawn-{turn}-{loops}"
        home = make_home(name)
        if server:
            home.environ[STATE_URL] = new_database(server, name)
        kills += kills_until_it_ends(home, name, draw)
        assert_put_right(home, name, api)
        assert_as_if_whole(home, name, whole)
        loops += 1
