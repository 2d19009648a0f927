"""Killed on one machine, a loop is finished on another that shares no disk with it: Postgres and S3 hold all."""

from __future__ import annotations

import functools
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from models.pipeline.steps import STEPS
from tasks.host.object_store import ObjectStore
from tasks.host.store_addresses import OPTUNA_STORAGE, ROOT, STATE_URL, TRACKING_URI
from tests.fault.aftermath import assert_as_if_whole, assert_survives
from tests.fault.conftest import SPEC, TWO_RANKS
from tests.postgres import is_installed, new_database, postgres
from tests.running import Loopline, assert_gone
from tests.s3 import BUCKET, s3

pytestmark = [
    pytest.mark.fault,
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]
Machines = Callable[..., Callable[[], Loopline]]
soak = functools.partial(pytest.param, marks=pytest.mark.soak)
LOOK_S = 0.2
"""The S3 server lives in this process: a look costs some 20 ms of its CPU."""


class Stores(NamedTuple):
    """A Postgres, and the environment of an S3 server."""

    postgres: str
    s3: dict[str, str]


@pytest.fixture(scope="module")
def stores() -> Iterator[Stores]:
    with postgres() as address, s3() as environ:
        yield Stores(address, environ)


@pytest.fixture
def machines(make_home, stores: Stores) -> Machines:
    """A function that gives a function: each call makes another machine of one deployment, with nothing on its disk."""

    def deployed(name: str, spec: str) -> Callable[[], Loopline]:
        databases = {STATE_URL: f"{name}-state", TRACKING_URI: f"{name}-mlflow", OPTUNA_STORAGE: f"{name}-optuna"}
        environ = {variable: new_database(stores.postgres, database) for variable, database in databases.items()}

        def machine() -> Loopline:
            home = make_home(name, spec)
            home.environ |= {**environ, **stores.s3, ROOT: f"s3://{BUCKET}/{name}"}
            return home

        return machine

    return deployed


def objects(home: Loopline, stores: Stores, prefix: str) -> list[str]:
    with mock.patch.dict("os.environ", stores.s3):
        return list(ObjectStore(home.environ[ROOT]).listed(prefix))


def lost(home: Loopline, name: str) -> dict[str, dict[str, object]]:
    """Lose a machine's disk; gives the records of the steps that are done, but of the one whose work is in git."""
    before = home.records(name)
    assert_gone(home.home)
    shutil.rmtree(home.home)
    return {key: record for key, record in before.items() if record["step"] != "version"}


@pytest.mark.wide
def test_a_training_that_was_killed_is_finished_elsewhere(
    machines: Machines, whole_on_two_ranks: Loopline, stores: Stores
):
    machine = machines("apart", TWO_RANKS)
    first = machine()
    run, checkpoints = first.start("run", "apart"), "projects/apart/checkpoints"

    def has_checkpoint() -> bool:
        time.sleep(LOOK_S)
        return any("manifests/" in name for name in objects(first, stores, f"{checkpoints}/train"))

    run.wait_until(has_checkpoint)
    assert run.kill().code == -signal.SIGKILL
    before = lost(first, "apart")
    assert {record["step"] for record in before.values()} >= {"ingest", "prepare", "search"}

    second = machine()
    second("run", "apart").ok()
    assert_survives(before, {key: second.records("apart")[key] for key in before})
    assert_as_if_whole(second, "apart", whole_on_two_ranks)
    assert second.record("apart", "train")["result"]["resumed_from"]
    assert objects(second, stores, checkpoints) == []

    shutil.rmtree(second.home / ".loopline")
    assert {step["state"] for step in second("plan", "apart", "--json").ok().json} == {"done"}
    assert not (second.state("apart") / "work").exists(), "nothing is fetched for a plan"
    trained = second.record("apart", "train")
    second("run", "apart", "-s", "judge.margin=0.06").ok()
    assert second.record("apart", "train") == trained
    assert second.record("apart", "judge")["result"]["decision"]
    assert (second.state("apart") / "card.html").exists()
    assert second.versions("apart") == [1]


@pytest.mark.parametrize("step", ["train", *(soak(step.name) for step in STEPS if step.name != "train")])
def test_killed_where_a_step_begins_a_loop_is_finished_elsewhere(machines: Machines, whole: Loopline, step: str):
    machine = machines(step, SPEC)
    first = machine()
    run = first.start("run", step)
    run.wait_for(f"{step:<18} ...")
    assert run.kill().code == -signal.SIGKILL
    before = lost(first, step)
    second = machine()
    second("run", step).ok()
    assert_survives(before, {key: second.records(step)[key] for key in before})
    assert_as_if_whole(second, step, whole)
    assert artifacts(second, step) == artifacts(whole, "whole")


def artifacts(home: Loopline, name: str) -> set[str]:
    """The files of the loop's run in MLflow."""
    (run,) = {record["loop_id"] for record in home.records(name).values()}
    ((uri,),) = home.query("select artifact_uri from runs where name = ?", run)
    if ROOT not in home.environ:
        place = Path(uri.removeprefix("file://"))
        return {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    place = uri.removeprefix(f"{home.environ[ROOT]}/")
    with mock.patch.dict("os.environ", home.environ):
        return {file.removeprefix(f"{place}/") for file in ObjectStore(home.environ[ROOT]).listed(place)}
