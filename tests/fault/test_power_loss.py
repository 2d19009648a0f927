"""After a loss of power the disk is as it was at one moment: the loop goes on from there, or says clearly why not.

The moment is frozen: every process of the workspace is suspended while its folder is copied. What was written without
fsync is in the copy too; only a real loss of power can lose that.
"""

from __future__ import annotations

import random
import shutil
import signal
import time

import psutil
import pytest

from tests.conftest import SEED
from tests.fault.aftermath import assert_as_if_whole, assert_put_right
from tests.running import Loopline, Running, assert_gone

pytestmark = [pytest.mark.fault, pytest.mark.soak]

LONGEST_RUN_S = 10.0
DRAWS = 8


def freeze(run: Running) -> list[psutil.Process]:
    """Suspend the command and all that it started, also what is started meanwhile."""
    frozen: dict[int, psutil.Process] = {}
    while True:
        family = [psutil.Process(run.process.pid), *psutil.Process(run.process.pid).children(recursive=True)]
        new = [process for process in family if process.pid not in frozen]
        if not new:
            return list(frozen.values())
        for process in new:
            process.suspend()
            frozen[process.pid] = process


@pytest.mark.parametrize("turn", range(DRAWS))
def test_a_loop_goes_on_from_any_moment_of_the_disk(make_home, whole: Loopline, api: str, turn: int):
    draw, name = random.Random(f"{SEED}/{turn}"), f"dark{turn}"
    home = make_home(name)
    run = home.start("run", name)
    time.sleep(draw.uniform(0.5, LONGEST_RUN_S))
    if run.process.poll() is None:
        moment = home.home.with_name("moment")
        freeze(run)
        shutil.copytree(home.home, moment, symlinks=True)
        for process in psutil.Process(run.process.pid).children(recursive=True):
            process.send_signal(signal.SIGKILL)
        run.kill()
        assert_gone(home.home)
        shutil.rmtree(home.home)
        moment.rename(home.home)
    home("run", name).ok()
    assert_put_right(home, name, api)
    assert_as_if_whole(home, name, whole)
