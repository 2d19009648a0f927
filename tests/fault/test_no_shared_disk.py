"""Killed on one machine, a loop is finished on another that shares no disk with it: Postgres and S3 hold all."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from typing import NamedTuple
from unittest import mock

import pytest

from tasks.host.object_store import ObjectStore
from tasks.host.store_addresses import OPTUNA_STORAGE, ROOT, STATE_URL, TRACKING_URI
from tests.fault.aftermath import assert_as_if_whole, assert_survives
from tests.fault.conftest import TWO_RANKS
from tests.postgres import is_installed, new_database, postgres
from tests.running import Loopline, assert_gone
from tests.s3 import BUCKET, s3

pytestmark = [
    pytest.mark.fault,
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]


class Stores(NamedTuple):
    """A Postgres, and the environment of an S3 server."""

    postgres: str
    s3: dict[str, str]


@pytest.fixture(scope="module")
def stores() -> Iterator[Stores]:
    with postgres() as address, s3() as environ:
        yield Stores(address, environ)


def share(home: Loopline, stores: Stores, name: str) -> Loopline:
    """Let a workspace keep nothing but a cache on its own disk."""
    databases = {variable: f"{stores.postgres}/{database}" for variable, database in databases_of(name).items()}
    home.environ |= {**databases, **stores.s3, ROOT: f"s3://{BUCKET}/{name}"}
    return home


def databases_of(name: str) -> dict[str, str]:
    """The names of the databases by the variables that name them."""
    return {STATE_URL: f"{name}-state", TRACKING_URI: f"{name}-mlflow", OPTUNA_STORAGE: f"{name}-optuna"}


def test_a_training_that_was_killed_is_finished_elsewhere(make_home, whole_on_two_ranks: Loopline, stores: Stores):
    for database in databases_of("apart").values():
        new_database(stores.postgres, database)
    first = share(make_home("apart", TWO_RANKS), stores, "apart")
    run = first.start("run", "apart")
    with mock.patch.dict("os.environ", stores.s3):
        store = ObjectStore(first.environ[ROOT])
        run.wait_until(lambda: any("manifests/" in name for name in store.listed("projects/apart/checkpoints/train")))
    assert run.kill().code == -signal.SIGKILL
    assert_gone(first.home)
    before = first.records("apart")
    shutil.rmtree(first.home)

    second = share(make_home("apart", TWO_RANKS), stores, "apart")
    second("run", "apart").ok()
    assert_survives(
        {key: record for key, record in before.items() if record["step"] != "version"}, second.records("apart")
    )
    assert_as_if_whole(second, "apart", whole_on_two_ranks)
    assert second.record("apart", "train")["result"]["resumed_from"]
    assert not store.listed("projects/apart/checkpoints")
