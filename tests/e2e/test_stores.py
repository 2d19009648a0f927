"""Stores that are away, locked, full or not writable: what was done is kept, and the next run goes on from there."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import subprocess
import threading

import pytest
from mlflow import MlflowClient

from tests.e2e.conftest import SPEC
from tests.running import Ended, assert_gone, assert_unlocked, mounted
from tests.wide import wide

pytestmark = pytest.mark.e2e

QUICK = ("-s", "search.trials=0", "-s", "train.epochs=2")


CHANGES = (
    ("promote", "fixed", "1"),
    ("rollback", "fixed"),
    ("predict", "fixed", "projects/fixed/penguins.csv", "--out", "rows.parquet"),
    ("trigger", "fixed"),
    ("monitor", "fixed"),
    ("reap",),
    ("run", "fixed", *QUICK, "-s", "train.lr=0.02"),
    ("up",),
)
"""Commands that write."""


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def told(ended: Ended) -> str:
    assert "Traceback" not in ended.err, ended.err[-4000:]
    return ended.err[ended.err.rindex("loopline: ") :]


@pytest.mark.wide
def test_mlflow_away_loses_nothing(make_home):
    """Training is done and kept; with the store back the next run registers without training, and the log is there.

    That run finds no Prefect server where it is told that there is one, and does without.
    """
    home = make_home("away")
    home.project("away", SPEC)
    gone = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{closed_port()}"}
    first = home("run", "away", *QUICK, **gone)
    assert first.code == 1
    assert gone["MLFLOW_TRACKING_URI"] in told(first)
    trained = home.record("away", "train")
    again = home("run", "away", *QUICK, **gone)
    assert again.code == 1
    assert gone["MLFLOW_TRACKING_URI"] in told(again)
    prefect = f"http://127.0.0.1:{closed_port()}/api"
    try:
        last = home("run", "away", *QUICK, PREFECT_API_URL=prefect).ok()
    finally:
        home.stop()
    assert f"no Prefect server answers at {prefect}: using the workspace's own" in last.err
    assert home.record("away", "train") == trained
    assert home.versions("away") == [1]
    assert home.runs() == {trained["loop_id"]: "FINISHED"}
    losses = home.query("select step from metrics where key = 'curves/val_loss' order by step")
    assert losses == [(1,), (2,)], "the epochs of the run without a store"


@pytest.mark.wide
def test_a_tracking_store_locked_for_a_while_is_waited_for_and_what_it_lost_is_made_again(make_home):
    home = make_home("locked")
    home.project("locked", SPEC)
    run = home.start("run", "locked", *QUICK)
    run.wait_for("train")
    path = home.home / ".loopline" / "mlflow" / "mlflow.db"
    run.wait_until(path.exists)
    with contextlib.closing(
        sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    ) as connection:
        connection.execute("begin immediate")
        release = threading.Timer(4, connection.rollback)
        release.start()
        run.ended().ok()
        release.join()
    assert home.versions("locked") == [1]
    MlflowClient(f"sqlite:///{path}", f"sqlite:///{path}").delete_model_version("locked", "1")
    trained = home.record("locked", "train")
    home("run", "locked", *QUICK).ok()
    assert home.aliases("locked") == {"champion": 2}, "what the store has lost is registered and promoted again"
    assert home.record("locked", "train") == trained
    assert "Nothing to do" in home("run", "locked", *QUICK).ok().out


@pytest.mark.parametrize("size_kb", [40, wide(900), pytest.param(1800, marks=pytest.mark.soak)])
def test_a_full_disk_is_told_and_the_next_run_goes_on(make_home, size_kb: int):
    """Wherever in the loop the disk fills up: reading data, or logging and registering."""
    home = make_home("full")
    with mounted(home.home, "-t", "tmpfs", "-o", f"size={size_kb}k", "tmpfs"):
        home.project("full", SPEC)
        ended = home("run", "full", *QUICK)
        assert ended.code == 1
        assert "the disk is full: free some space and run again" in told(ended)
        assert [str(path) for path in home.home.rglob(".*.tmp")] == []
        assert_unlocked(home.home, "full")
        assert_gone(home.home)
        if size_kb == 40:  # nothing was done: a run from there is a first run
            return
        subprocess.run(["mount", "-o", "remount,size=200m", str(home.home)], check=True)
        home("run", "full", *QUICK).ok()
        assert home.versions("full") == [1]
        assert home.aliases("full") == {"champion": 1}
        assert set(home.runs().values()) == {"FINISHED"}


def test_a_workspace_that_cannot_be_written(make_home):
    home = make_home("fixed")
    home.project("fixed", SPEC)
    before = sorted(home.home.rglob("*"))
    with mounted(home.home, "--bind", str(home.home)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(home.home)], check=True)
        said = told(ended := home("run", "fixed", *QUICK))
        assert ended.code == 1
        assert "read-only" in said
        assert "LOOPLINE_HOME" in said
        assert home("plan", "fixed").code == 0
    assert sorted(home.home.rglob("*")) == before


@pytest.mark.wide
def test_what_was_made_is_read_in_a_workspace_that_cannot_be_written_any_more(make_home):
    home = make_home("fixed")
    home.project("fixed", SPEC)
    home("run", "fixed", *QUICK).ok()
    with mounted(home.home, "--bind", str(home.home)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(home.home)], check=True)
        assert {step["state"] for step in home("plan", "fixed", *QUICK, "--json").ok().json} == {"done"}
        assert "Nothing to do" in home("run", "fixed", *QUICK).ok().out
        assert "version 1" in home("status", "fixed").ok().out
        for command in CHANGES:
            said = told(ended := home(*command))
            assert ended.code == 1, command
            assert "set LOOPLINE_HOME to a folder that can be written" in said, command


@pytest.mark.wide
def test_a_project_that_cannot_be_written(make_home):
    home = make_home("sealed")
    folder = home.project("sealed", SPEC)
    with mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        said = told(ended := home("run", "sealed", *QUICK))
        assert ended.code == 1
        assert "read-only" in said
    assert home.versions("sealed") == []
    assert [path.name for path in folder.iterdir() if path.suffix == ".tmp" or path.name == "data"] == []
