"""Wherever the moves are: a server follows them, rolls back by itself, and keeps what it has while they are away."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models.files import write_json
from models.serving.releases import Canary, Release, ReleasePlan
from tasks.host import database, processes, server_access
from tasks.host.store_addresses import STATE_URL
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow.client import client
from tasks.mlflow.release_plans import change
from tasks.release import controller, registry_jobs
from tasks.release.controller import ReleaseController
from tasks.release.settings import ServerSettings
from tasks.release.shared_state import VersionOutcomes, WorkerReport
from tests.mlflow_serving import serving
from tests.postgres import Server, is_installed, new_database, postgres_server
from tests.registered import register_served
from tests.wide import wide

TRACKING = "MLFLOW_TRACKING_URI"
needs_postgres = [
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]


class Embedded:
    """Moves in the workspace's own SQLite, registry in the workspace's own file."""

    follows_moves, has_http = True, False

    def __init__(self, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trains = self.serves = workspace
        self._monkeypatch = monkeypatch

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """While in the block, what the server follows cannot be read."""
        files = {path: path.read_bytes() for path in self.trains.state.glob(f"{database.FILE}*")}
        for path in files:
            path.unlink()
        (self.trains.state / database.FILE).write_text("no database")
        try:
            yield
        finally:
            for path, content in files.items():
                path.write_bytes(content)


class SameWorkspace(Embedded):
    """Moves in the workspace's own SQLite, beside an MLflow server."""

    has_http = True


class Elsewhere(SameWorkspace):
    """A server that knows MLflow's server alone."""

    follows_moves = False

    def __init__(self, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(workspace, monkeypatch)
        self.serves = Workspace(workspace.root.parent / "serves")
        self.serves.make()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        with self._monkeypatch.context() as inner:
            inner.setenv(TRACKING, "http://127.0.0.1:1")
            yield


class InPostgres(Elsewhere):
    """Moves in Postgres, which the server knows too."""

    follows_moves = True

    def __init__(self, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
        super().__init__(workspace, monkeypatch)
        self._server = server
        monkeypatch.setenv(STATE_URL, new_database(server.address, "followed"))

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        self._server.stop()
        try:
            yield
        finally:
            self._server.start()


@pytest.fixture
def place(
    request: pytest.FixtureRequest, workspace: Workspace, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Embedded]:
    monkeypatch.setattr(controller, "try_out", lambda *_: None)
    with contextlib.ExitStack() as stack:
        kind = request.param
        more = [stack.enter_context(postgres_server())] if kind is InPostgres else []
        if kind.has_http:
            tracking = Workspace(workspace.root / "mlflow")
            tracking.make()
            shutil.copytree(empty_store, tracking.state / "mlflow")
            monkeypatch.setenv(TRACKING, f"sqlite:///{tracking.state / 'mlflow' / 'mlflow.db'}")
            url, _ = stack.enter_context(serving(tracking))
            monkeypatch.setenv(TRACKING, url)
            for name, value in server_access.credentials(tracking, {}).items():
                monkeypatch.setenv(name, value)
        else:
            shutil.copytree(empty_store, workspace.state / "mlflow")
        yield kind(workspace, monkeypatch, *more)


class Walk:
    """A server's controller, started again and again, and the versions of its model."""

    def __init__(self, place: Embedded) -> None:
        self.place = place
        for number in ("1", "2", "3"):
            register_served(place.trains, "tiny", number)
        self.registry = open_registry(place.trains, "tiny")
        self.told: list[tuple[str, ...]] = []
        self.lead: Any = None

    def start(self) -> Release:
        """Start the server anew."""
        self.end()
        self.lead = ReleaseController(ServerSettings(str(self.place.serves.root), ("tiny",)), "tiny")
        self.lead._background.give_back = lambda *given: self.told.append(given)
        return self.now()

    def end(self) -> None:
        """End the server."""
        if self.lead is not None:
            self.lead.end()
            self.lead._lock.release()

    def now(self) -> Release:
        """What both of its threads make of a look."""
        self.lead.guard()
        self.lead.step()
        release = self.lead.release_state.release()
        return release or Release()

    def fail(self, version: str) -> Release:
        """Report failures of a version; what the guard makes of them."""
        self.now()
        tallies = {version: VersionOutcomes(answers=50, failed=50)}
        report = WorkerReport(process=processes.identity(), loaded=["1", "2", "3"], tallies=tallies)
        self.lead.release_state.report(report)
        self.lead.guard()
        self.lead.guard()
        return self.lead.release_state.release()

    def give_back(self, action: str) -> None:
        """Tell the others of the last rollback, which the owner of the model records in the server's name."""
        registry_jobs.give_back(self.place.serves, "tiny", *self.told[-1])
        assert self.now().returned == {}, "MLflow or the rows have it already"
        self.registry.look()
        move = self.registry.journal()[-1]
        assert (move.action, move.by) == (action, f"server on {socket.gethostname()}")
        assert move.reason.startswith("returned by the server: 50 of 50 answers failed")

    def forget(self, *, cache: bool = True) -> None:
        """What a server on a new disk lacks."""
        self.lead.release_state.release_path.unlink()
        if cache:
            shutil.rmtree(self.place.serves.cache / "models")


@pytest.fixture
def walk(place: Embedded) -> Iterator[Walk]:
    made = Walk(place)
    yield made
    made.end()


@pytest.mark.parametrize(
    "place",
    [Embedded, wide(SameWorkspace), wide(InPostgres, marks=[*needs_postgres, pytest.mark.wide]), wide(Elsewhere)],
    indirect=True,
    ids=lambda kind: kind.__name__,
)
def test_a_server_follows_every_move_and_keeps_what_it_has(place: Embedded, walk: Walk) -> None:
    walk.registry.promote("1", None)
    assert walk.start().stable == "1"
    walk.registry.promote("2", "1")
    assert walk.now().stable == "2"
    walk.registry.rollback()
    assert walk.now().stable == "1"

    change(walk.registry, ReleasePlan(canary=Canary(version="3", share=0.5)), "canary", "ada")
    canary = walk.now().canary
    assert canary is not None
    assert (canary.version, canary.share) == ("3", 0.5)
    returned = walk.fail("3")
    assert (returned.canary, list(returned.returned)) == (None, ["3"])
    walk.give_back("return")
    assert walk.now().returned == {}, "the plan has ended for all servers"

    walk.registry.promote("2", "1")
    assert walk.now().stable == "2"
    assert walk.fail("2").stable == "1"
    walk.give_back("rollback")
    assert (walk.now().stable, walk.now().returned) == ("1", {})

    if place.has_http:
        client().set_registered_model_alias("tiny", "champion", "3")
        assert walk.now().stable == ("1" if place.follows_moves else "3")
    stays = walk.now().stable
    with place.away():
        assert (walk.now().stable, "stays" in walk.now().away) == (stays, True)
        assert (walk.start().stable, "stays" in walk.now().away) == (stays, True)
        walk.forget(cache=False)
        write_json(place.serves.cache / "models" / "tiny" / "aliases.json", {"champion": "2"})
        started = walk.start()
        assert (started.stable, "beginning with version 2 from the cache" in started.away) == ("2", True)
        walk.forget()
        started = walk.start()
        by_alias = place.follows_moves and place.has_http
        assert started.stable == ("3" if by_alias else None)
        assert ("beginning with MLflow's alias" in started.away) == by_alias
        assert walk.now() == started, "it stays with what it began with"
    assert (walk.now().stable, walk.now().away) == (stays, "")


@pytest.mark.parametrize("place", [Embedded], indirect=True, ids=["Embedded"])
def test_a_server_answers_from_its_cache_where_mlflow_is_from_before_the_champion(
    place: Embedded, walk: Walk, empty_store: Path
) -> None:
    walk.registry.promote("1", None)
    assert walk.start().stable == "1"
    store = place.trains.state / "mlflow"
    shutil.rmtree(store)
    shutil.copytree(empty_store, store)
    walk.registry.look()
    champion = walk.registry.champion()
    assert champion is not None
    assert champion.number == "1", "the decision stays"
    assert walk.now().stable == "1"
    assert walk.start().stable == "1"
