"""Two machines that share one Postgres and one MLflow store."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.host import database
from tasks.host.store_addresses import OPTUNA_STORAGE, ROOT, STATE_URL, TRACKING_URI, normalised, store_addresses
from tasks.host.workspace import Workspace
from tasks.ranks import rank_pool
from tests import warm
from tests.environment import QUIET
from tests.postgres import Server, new_database, postgres_server
from tests.time.machines import Elsewhere, Machine

_names = (f"state{number}" for number in itertools.count())


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with postgres_server() as own:
        database.make_tables(normalised(STATE_URL, new_database(own.address, "template")))
        database._engine.cache_clear()
        yield own


@pytest.fixture
def shared(workspace: Workspace, server: Server, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """This machine's workspace: its state is in Postgres."""
    monkeypatch.setenv(STATE_URL, normalised(STATE_URL, new_database(server.address, next(_names))))
    return workspace


@pytest.fixture(scope="session", autouse=True)
def _warm_ranks() -> Iterator[None]:
    """No rank pool of a test's own process imports torch again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_pool, "subprocess", warm.WarmNurseries())
        yield


@pytest.fixture
def tracked(shared: Workspace, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The same with an MLflow that both machines use."""
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    shutil.copytree(empty_store, shared.state / "mlflow", dirs_exist_ok=True)
    monkeypatch.setenv(TRACKING_URI, f"sqlite:///{shared.state / 'mlflow' / 'mlflow.db'}")
    return shared


@pytest.fixture
def bytes_and_studies(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One root of bytes and one Optuna for both machines."""
    monkeypatch.setenv(ROOT, f"file://{tmp_path / 'root'}")
    studies = store_addresses({OPTUNA_STORAGE: new_database(server.address, next(_names))})
    monkeypatch.setenv(OPTUNA_STORAGE, studies[OPTUNA_STORAGE])


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    """A function that makes a machine."""
    return lambda name, clock_s=0.0: Machine(tmp_path / name, clock_s)
