"""Jobs and rank pools to train with, and how to run code in other processes at the same time."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tasks.host import server_access, stores
from tasks.host.workspace import Workspace
from tasks.ranks import rank_pool
from tasks.ranks.rank_pool import RankPool
from tests import warm
from tests.wide import wide

if TYPE_CHECKING:
    from tests.tiny_jobs import MakeJob

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here talks to a real tool."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.integration)


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    """A function that writes a tiny problem and gives a job for it."""
    from tests.tiny_jobs import job_maker  # torch: only for tests that train

    return job_maker(tmp_path)


@pytest.fixture(scope="session", autouse=True)
def _warm_processes() -> Iterator[None]:
    """No rank pool of a test's own process imports torch again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_pool, "subprocess", warm.WarmNurseries())
        yield


@pytest.fixture
def cold_fork_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gangs start their processes as they do for a user."""
    monkeypatch.setattr(rank_pool, "subprocess", subprocess)


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    """A warmed rank pool for all tests of a module."""
    with RankPool() as warmed:
        warmed.warm()
        yield warmed


@pytest.fixture
def tracked(workspace: Workspace, empty_store: Path) -> Workspace:
    """The workspace with an initialised tracking store."""
    shutil.copytree(empty_store, workspace.state / "mlflow")
    return workspace


@pytest.fixture(scope="module")  # before any test's own environment, which it would bring back
def module_environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def automating(
    tmp_path_factory: pytest.TempPathFactory, empty_prefect: Path, module_environment: None
) -> Iterator[str]:
    """The server of a workspace whose platform was up: it has Prefect's scheduler and triggers."""
    from tests.running import begin_prefect, prefect_server

    home = Workspace(tmp_path_factory.mktemp("automating"))
    begin_prefect(home.root, empty_prefect)
    home.platform.mkdir()
    with prefect_server(home.root) as url:
        yield url


@pytest.fixture(scope="module")
def served(
    empty_store: Path, tmp_path_factory: pytest.TempPathFactory, module_environment: None
) -> Iterator[dict[str, str]]:
    """The variables that lead to MLflow's own server over a store of its own."""
    from tests.mlflow_serving import serving

    workspace = Workspace(tmp_path_factory.mktemp("served"))
    workspace.make()
    shutil.copytree(empty_store, workspace.state / "mlflow")
    stores.configure(workspace)
    with serving(workspace) as (url, _):
        yield {"MLFLOW_TRACKING_URI": url, **server_access.credentials(workspace, {})}


@pytest.fixture(params=["embedded", wide("served")])
def both(request: pytest.FixtureRequest, tracked: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace whose registry is its own file, and one whose registry is shared through a server.

    Tests marked by `each_registry` have the second with every change too.
    """
    return _placed(request, tracked, monkeypatch)


each_registry = pytest.mark.parametrize("both", ["embedded", "served"], indirect=True)


@pytest.fixture(params=["embedded", pytest.param("served", marks=pytest.mark.soak)])
def place(request: pytest.FixtureRequest, tracked: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The same where only MLflow's own doing differs: daily with the file."""
    return _placed(request, tracked, monkeypatch)


def _placed(request: pytest.FixtureRequest, tracked: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    if request.param == "served":
        for name, value in request.getfixturevalue("served").items():
            monkeypatch.setenv(name, value)
    return tracked


@pytest.fixture
def model(request: pytest.FixtureRequest) -> str:
    """A model's name of this test's own: the served registry outlives it."""
    return f"m-{abs(hash(request.node.nodeid)) % 10**10}"
