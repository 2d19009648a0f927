"""Two servers without a common disk judge a version by all its traffic, and roll it back once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import GateRefused
from models.serving.releases import Canary, ReleasePlan
from tasks.host import processes
from tasks.host.store_addresses import STATE_URL
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow.release_plans import change
from tasks.release import controller, registry_jobs
from tasks.release.controller import ReleaseController
from tasks.release.deployment import exchange
from tasks.release.settings import ServerSettings
from tasks.release.shared_state import VersionOutcomes, WorkerReport
from tasks.state import findings as monitoring
from tasks.state.champion_moves import moves_of, serving_state
from tests.integration.test_releases import registry_of
from tests.postgres import is_installed, new_database, postgres
from tests.registered import register_served
from tests.unit.models.serving.test_auto_rollback import findings, window

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]
FEW = VersionOutcomes(answers=10, failed=2)
"""Too few failures for a verdict of one server: the lower end of their share is under 5 %."""


class Host:
    """A server's controller on a state root of its own, without workers.

    It asks the registry to take a version back: `told` why, of which of its `acts`.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workspace = Workspace(root)
        self.workspace.make()
        self.told: dict[str, str] = {}
        self.acts: dict[str, str] = {}
        self.lead = ReleaseController(ServerSettings(str(root), ("tiny",)), "tiny")
        monkeypatch.setattr(self.lead._background, "give_back", self._tell)
        assert self.lead.exchange is not None
        self.exchange = self.lead.exchange

    def _tell(self, version: str, why: str, act: str) -> None:
        self.told[version], self.acts[version] = why, act

    def step(self) -> None:
        """What its two threads do, once."""
        self.lead.guard()
        self.lead.step()

    def report(self, **versions: VersionOutcomes) -> None:
        """A worker's report of what it counted so far."""
        outcomes = {name.removeprefix("v"): counted for name, counted in versions.items()}
        report = WorkerReport(process=processes.identity(), loaded=["1", "2"], tallies=outcomes)
        self.lead.release_state.report(report)


def look(*hosts: Host) -> None:
    """Each host counts, all exchange their counts, each host looks again."""
    for host in hosts:
        host.step()
    for _ in range(2):
        for host in hosts:
            exchange([host.exchange])
    for host in hosts:
        host.step()


def tell(monkeypatch: pytest.MonkeyPatch, *hosts: Host) -> None:
    """Each host's job has read the registry before another host's job changes it."""
    seen = serving_state(hosts[0].workspace.state, "tiny")
    monkeypatch.setattr(registry_jobs, "serving_state", lambda *_: seen)
    for host in hosts:
        with contextlib.suppress(GateRefused):  # another host was first
            registry_jobs.give_back(host.workspace, "tiny", "2", host.told["2"], host.acts["2"])


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as address:
        yield address


@pytest.fixture
def hosts(
    server: str, workspace: Workspace, empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Host, Host]]:
    monkeypatch.setenv(STATE_URL, new_database(server, tmp_path.name))
    monkeypatch.setattr(controller, "try_out", lambda *_: None)
    with registry_of("embedded", workspace, empty_store, monkeypatch):
        for number in ("1", "2"):
            register_served(workspace, "tiny", number)
        open_registry(workspace, "tiny").promote("1", None)
        made = [Host(tmp_path / name, monkeypatch) for name in ("first", "second")]
        yield made[0], made[1]
        for host in made:
            host.lead.end()


def test_a_canary_ends_once_by_the_sum_of_both(
    workspace: Workspace, hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ReleasePlan(canary=Canary(version="2", share=0.5))
    change(open_registry(workspace, "tiny"), plan, "canary", "ada")
    for _ in range(2):
        look(*hosts)
    for host in hosts:
        host.report(v1=VersionOutcomes(answers=10), v2=FEW)
    hosts[0].step()
    assert not hosts[0].told, "its own traffic is too little"
    look(*hosts)
    for host in hosts:
        release = host.lead.release_state.release()
        assert release is not None
        assert (release.stable, release.canary) == ("1", None)
        assert host.told == {"2": "4 of 20 answers failed in the model, surely more than 0.05 of them"}
    tell(monkeypatch, *hosts)
    assert [move.action for move in moves_of(workspace.state, "tiny")][:2] == ["return", "canary"]


def test_a_canary_that_is_tried_again_is_judged_without_the_first_trial(
    workspace: Workspace, hosts: tuple[Host, Host]
) -> None:
    """The second host looks neither while the first trial ends nor before the next begins."""
    first, second = hosts
    registry, plan = open_registry(workspace, "tiny"), ReleasePlan(canary=Canary(version="2", share=0.5))
    change(registry, plan, "canary", "ada")
    for _ in range(2):
        look(*hosts)
    second.report(v2=FEW)
    second.step()
    change(registry, ReleasePlan(), "end", "ada")
    first.step()
    change(registry, plan, "canary", "ada")
    look(first)
    exchange([second.exchange])  # still with the first trial
    first.report(v2=FEW)
    first.step()
    exchange([first.exchange])
    first.step()
    assert not first.told, "two failures of ten are of this trial"
    for _ in range(2):
        look(*hosts)
    assert (first.told, second.told) == ({}, {})


def test_a_champion_is_rolled_back_once_by_the_sum_of_both(
    workspace: Workspace, hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    look(*hosts)
    registry = open_registry(workspace, "tiny")
    registry.promote("2", "1")
    for _ in range(2):
        look(*hosts)
    for host in hosts:
        host.report(v2=FEW)
    look(*hosts)
    assert [list(host.told) for host in hosts] == [["2"], ["2"]]
    tell(monkeypatch, *hosts)
    moves = [move.action for move in registry.journal()]
    assert [action for action in moves if action in ("promote", "rollback")] == ["promote", "promote", "rollback"]


def test_what_monitoring_of_another_machine_found_counts(workspace: Workspace, hosts: tuple[Host, Host]) -> None:
    look(*hosts)
    open_registry(workspace, "tiny").promote("2", "1")
    look(*hosts)
    began = hosts[0].lead.release_state.release()
    assert began is not None
    report = findings(window("1", 1, False), window("2", began.since + 10, True))
    monitoring.save(workspace.state / "projects" / "tiny", report)
    look(*hosts)
    assert [list(host.told) for host in hosts] == [["2"], ["2"]]
