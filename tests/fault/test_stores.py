"""Two at once, stores that die under a run, and a promotion cut in two."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from tests.fault.conftest import SPEC
from tests.running import assert_gone, flow_runs

pytestmark = pytest.mark.fault

QUICK = ("-s", "search.trials=0", "-s", "train.epochs=2")


def test_two_runs_of_one_project_at_once(make_home):
    home = make_home("twice")
    first = home.start("run", "twice", *QUICK)
    first.wait_for("ingest")
    second = home("run", "twice", *QUICK)
    assert second.code == 1
    assert "a loop of twice runs already" in second.err
    assert str(first.process.pid) in second.err
    assert "Traceback" not in second.err
    first.ended().ok()
    assert home.versions("twice") == [1]


def test_two_projects_at_once_from_a_fresh_workspace(make_home):
    home = make_home("left")
    home.project("right", SPEC)
    both = [home.start("run", name, *QUICK) for name in ("left", "right")]
    for run in both:
        run.ended().ok()
    for name in ("left", "right"):
        assert home.versions(name) == [1]
        assert home.aliases(name) == {"champion": 1}
    assert set(home.runs().values()) == {"FINISHED"}
    assert "up to date" in home.tool("dvc", "status").ok().out


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


def test_a_promotion_cut_between_journal_and_alias_is_finished_by_the_next_run(make_home):
    home = make_home("cut")
    run = home.start("run", "cut", *QUICK)
    run.wait_for(f"{'promote':<18} ...")
    run.kill(signal.SIGKILL)
    if not home.query("select 1 from registered_model_tags where key like 'loopline.journal.%'"):
        home.tool("python", "-c", WRITE_JOURNAL).ok()
    assert home.aliases("cut").keys() <= {"challenger"}, "the alias had not moved when it was cut"
    home("run", "cut", *QUICK).ok()
    assert home.versions("cut") == [1]
    assert home.aliases("cut") == {"champion": 1}
    assert home.query("select count(*) from registered_model_tags where key like 'loopline.journal.%'") == [(1,)]


WRITE_JOURNAL = """
import time
from mlflow import MlflowClient
from models.serving.registry import ChampionMove
from tasks.mlflow.registry_reader import JOURNAL
entry = ChampionMove(number=1, action="promote", before=None, after="1", at=time.time(), by="one that was killed")
MlflowClient().set_registered_model_tag("cut", JOURNAL + "000001", entry.model_dump_json())
"""
