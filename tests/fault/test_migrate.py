"""The move to Postgres: killed in the middle it is made again, and all that the files hold is there."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import optuna
import psycopg
import pytest
from sqlalchemy import select

from tasks.host.locks import held
from tasks.host.store_addresses import OPTUNA_STORAGE, PREFECT_DATABASE, store_addresses
from tasks.host.tables import leases
from tasks.host.workspace import Workspace
from tasks.tools.optuna_study import storage, trials_of
from tests.conftest import MakeOnce
from tests.postgres import is_installed, postgres
from tests.running import Loopline
from tests.wide import wide

pytestmark = [
    pytest.mark.fault,
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]
FILES = ("state.db", "mlflow/mlflow.db", "optuna/journal.log", "prefect/prefect.db")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as address:
        yield address


@pytest.fixture
def home(whole: Loopline, tmp_path: Path, api: str, once: MakeOnce) -> Loopline:
    """A copy of the workspace in which a loop was finished, with the database of the Prefect server that knows it."""
    shutil.copytree(whole.home, tmp_path / "home", symlinks=True)
    prefect = Workspace(once("prefect")).state / "prefect" / "prefect.db"
    copy = tmp_path / "home" / ".loopline" / "prefect" / "prefect.db"
    with contextlib.closing(sqlite3.connect(prefect)) as read, contextlib.closing(sqlite3.connect(copy)) as written:
        read.backup(written)
    return Loopline(tmp_path / "home")


def hashes(home: Loopline) -> dict[str, str]:
    """Of what each file holds; SQLite moves it from its log into the file when the last reader leaves."""
    state, texts = home.home / ".loopline", {}
    for name in FILES:
        texts[name] = (state / name).read_bytes()
        if name.endswith(".db"):
            with contextlib.closing(sqlite3.connect(state / name)) as connection:
                texts[name] = "\n".join(connection.iterdump()).encode()
    return {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}


def flow_runs(home: Loopline) -> list[tuple[str, str]]:
    with psycopg.connect(home.environ[PREFECT_DATABASE]) as connection:
        return sorted(connection.execute("select name, state_type::text from flow_run").fetchall())


def history(home: Loopline) -> list[object]:
    """What the databases hold, read by the tools."""
    records = home.records("whole")
    versions = [(number, home.tags("whole", number)) for number in home.versions("whole")]
    metrics = home.query("select key, value, step, timestamp from metrics order by 1, 3, 4")
    named = {name: address for name, address in home.environ.items() if name == OPTUNA_STORAGE}
    with mock.patch.dict(os.environ, store_addresses(named)):
        store = storage(Workspace(home.home))
        names = sorted(study.study_name for study in store.get_all_studies())
        trials = [trials_of(optuna.load_study(study_name=name, storage=store)) for name in names]
    with home._state_database() as connection:
        epochs = connection.execute(select(leases.c.name, leases.c.epoch)).all()
    loop = home.book("whole")
    return [records, loop, home.outbox("whole"), epochs, home.runs(), home.aliases("whole"), versions, metrics, trials]


@pytest.mark.parametrize("left", [["mlflow"], wide(["state", "mlflow", "optuna", "prefect"])], ids=len)
def test_what_a_killed_move_began_the_next_one_completes(home: Loopline, server: str, left: list[str]):
    """It is killed after the copies of `left`; in `make test-wide` after each of the four."""
    lab = f"{server}/lab{len(left)}"
    with contextlib.closing(sqlite3.connect(home.home / ".loopline" / FILES[3])) as connection:
        runs = sorted(connection.execute("select name, state_type from flow_run").fetchall())
    to = ("migrate", "--to", lab)
    shown = home(*to).ok().out
    assert "step_records 12" in shown
    assert shown.endswith("Nothing was changed: --yes does it.\n")
    before, files = history(home), hashes(home)  # now: the first command follows the copied workspace's move
    with held(home.state("whole") / "loop.lock", lambda: "it is ours"):
        assert "whole: a loop runs: wait for it, or end it; nothing was changed" in home(*to, "--yes").err

    plan = home("plan", "whole").ok().out
    while left:  # a kill after each of the copies, unless the next one was quicker than the kill
        moving = home.start(*to, "--yes")
        moving.wait_for(f"{left[0]}: ")
        copied = moving.kill().err
        left = [name for name in left if f"{name}: " not in copied]
        assert hashes(home)[FILES[1]] == files[FILES[1]]
    home(*to, "--yes").ok()  # a kill after the last copy may come before the mark or after it
    again = home(*to, "--yes", "--json").ok()
    assert again.err == "", "all were complete"
    assert [moved["state"] for moved in again.json["moves"]] == ["moved"] * 4

    refused = home("plan", "whole")
    assert refused.code == 1
    assert f"moved it to {lab.replace('loopline@', '')}: set LOOPLINE_STATE_URL" in refused.err
    assert f"was moved to {lab.replace('loopline@', '')}: name that" in home(*to[:2], f"{server}/other").err
    assert "The state database is here again" in home("migrate", "--back").ok().out
    assert hashes(home) == files
    assert home("plan", "whole").ok().out == plan
    assert home(*to, "--yes").ok().err == "", "the file is marked again"

    home.environ |= again.json["environment"]
    for name in FILES:
        (home.home / ".loopline" / name).unlink()
    after = history(home)
    assert after == before
    with home._state_database() as connection:
        places = connection.exec_driver_sql("select place from versions").scalars().all()
    assert {place.partition("/")[0] for place in places} == {"file:"}, "another machine's workspace lies elsewhere"
    assert home("plan", "whole").ok().out == plan
    assert (home.book("whole")["loop_id"], "COMPLETED") in runs
    assert flow_runs(home) == runs
