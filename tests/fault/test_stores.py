"""A store that dies under a run."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from tests.running import assert_gone, flow_runs

pytestmark = pytest.mark.fault

QUICK = ("-s", "search.trials=0", "-s", "train.epochs=2")


@pytest.mark.wide
def test_the_prefect_server_may_die_under_a_run(make_home):
    """Prefect is the view; the run goes on without it, and the next one has a server again."""
    home = make_home("server")
    home.environ.clear()
    try:
        run = home.start("run", "server", *QUICK)
        run.wait_for("validate-raw")
        owner = json.loads((home.home / ".loopline" / "prefect" / "server.json").read_text())
        os.kill(owner["owner"]["pid"], signal.SIGKILL)
        run.ended().ok()
        assert home.versions("server") == [1]
        assert_gone(home.home)
        home("run", "server", *QUICK, "-s", "train.seed=1", "-s", "judge.margin=1.0").ok()
        assert home.versions("server") == [1, 2]
        url = json.loads(home("status", "--json").out)["prefect"]
        deadline = time.monotonic() + 10
        while "RUNNING" in flow_runs(url, "server", home.home).values() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert set(flow_runs(url, "server", home.home).values()) <= {"COMPLETED", "CRASHED"}
    finally:
        home.stop()
