"""The servers of a deployment sum up what each counted of one release, and nothing of an earlier one."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from models.errors import StoreError
from models.serving.releases import Canary, Release
from tasks.host import database
from tasks.host.tables import served_versions
from tasks.host.workspace import Workspace
from tasks.release.deployment import KEPT_S, LIVE_S, CountExchange, counted, deployed, exchange, follow
from tasks.release.shared_state import SharedNumber, VersionOutcomes

PLAIN = Release(generation=1, stable="1")
TRIED = Release(generation=2, stable="1", canary=Canary(version="2", share=0.5))
AGAIN = TRIED.model_copy(update={"generation": 4, "canary": Canary(version="2", share=0.5, trial="second")})
"""The same canary, tried once more."""
ELSEWHERE = TRIED.model_copy(update={"generation": 7})
"""The same release on a server that has seen more of them."""


def outcomes(answers: int, failed: int = 0) -> VersionOutcomes:
    return VersionOutcomes(answers=answers, failed=failed)


@pytest.fixture
def state(workspace: Workspace) -> Path:
    return workspace.state / "projects" / "tiny"


def test_servers_with_one_release_read_each_others_counts(state: Path) -> None:
    first, second, third = (CountExchange(state) for _ in range(3))
    first.offer(TRIED, {"2": outcomes(10, 2)})
    second.offer(ELSEWHERE, {"1": outcomes(5), "2": outcomes(20, 3)})
    third.offer(PLAIN, {"1": outcomes(100), "2": outcomes(100, 100)})
    for _ in range(2):
        for each in (first, second, third):
            exchange([each])
    assert first.others(TRIED) == {"1": outcomes(5), "2": outcomes(20, 3)}
    assert second.others(ELSEWHERE) == {"1": outcomes(0), "2": outcomes(10, 2)}
    assert first.others(PLAIN) == {}, "they were read for another release"
    everywhere = counted(state, TRIED)
    assert (everywhere.num_servers, everywhere.outcomes["2"]) == (2, outcomes(30, 5))


def test_counts_replace_those_before_and_a_server_that_ended_counts_on(state: Path) -> None:
    first, ended = CountExchange(state), CountExchange(state)
    first.offer(TRIED, {})
    exchange([first])
    for answers in (10, 30):
        ended.offer(TRIED, {"2": outcomes(answers)})
        exchange([ended])
    for _ in range(2):
        exchange([first])
        assert first.others(TRIED)["2"] == outcomes(30)


def test_what_was_counted_before_the_release_began_here_does_not_count(state: Path) -> None:
    first, ended = CountExchange(state), CountExchange(state)
    ended.offer(TRIED, {"2": outcomes(50, 50)})
    exchange([ended])
    first.offer(TRIED, {})
    exchange([first])
    assert first.others(TRIED) == {}


def test_a_server_that_missed_the_end_of_a_trial_adds_nothing_to_the_next(state: Path) -> None:
    first, late = CountExchange(state), CountExchange(state)
    first.offer(AGAIN, {"2": outcomes(1)})
    exchange([first])
    late.offer(TRIED, {"2": outcomes(50, 50)})
    exchange([late])
    exchange([first])
    assert first.others(AGAIN) == {}
    assert counted(state, AGAIN).outcomes["2"] == outcomes(1)


def test_a_server_that_does_not_lead_writes_nothing(state: Path) -> None:
    first, follower = CountExchange(state), CountExchange(state)
    first.offer(TRIED, {})
    exchange([first, follower])
    assert counted(state, TRIED).num_servers == 1


def test_while_the_database_is_away_the_counts_stay(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = CountExchange(state), CountExchange(state)
    for each in (first, second, first):
        each.offer(TRIED, {"2": outcomes(10)})
        exchange([each])

    def away(*_: object, **__: object) -> None:
        raise StoreError("away")

    monkeypatch.setattr(database, "writing", away)
    with pytest.raises(StoreError):
        exchange([first])
    assert first.others(TRIED)["2"] == outcomes(10)


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_the_status_of_a_host_whose_clock_is_wrong_counts_this_release_alone(
    state: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    real = time.time()
    monkeypatch.setattr(database, "now", lambda _: real)
    earlier, server = CountExchange(state), CountExchange(state)
    earlier.offer(TRIED, {"2": outcomes(50, 50)})
    exchange([earlier])
    monkeypatch.setattr(database, "now", lambda _: real + 60)
    server.offer(TRIED, {"2": outcomes(7)})
    exchange([server])
    monkeypatch.setattr(time, "time", lambda: real + 60 + ahead_s)
    begun = TRIED.model_copy(update={"since": real + 50 + ahead_s})
    shown = counted(state, begun)
    assert (shown.num_servers, shown.outcomes["2"]) == (1, outcomes(7))


def test_the_old_counts_of_a_project_that_is_served_no_more_are_deleted(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed, now = CountExchange(state.with_name("before")), time.time()
    renamed.offer(TRIED, {"2": outcomes(10)})
    exchange([renamed])
    monkeypatch.setattr(database, "now", lambda _: now + KEPT_S + 60)
    server = CountExchange(state)
    server.offer(TRIED, {"2": outcomes(1)})
    exchange([server])
    with database.reading(state.parents[1]) as connection:
        assert set(connection.scalars(select(served_versions.c.project))) == {"tiny"}


def test_live_servers_of_a_project_divide_the_limit_until_they_end_or_die(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    first, follower, dead = (CountExchange(state) for _ in range(3))
    other = CountExchange(state.with_name("other"))
    assert first.num_servers == 1, "before the first exchange"
    for each in (dead, first, follower, other, first):
        exchange([each])
    assert [each.num_servers for each in (first, follower, other)] == [3, 3, 1]
    monkeypatch.setattr(database, "now", lambda _: now + LIVE_S + 5)
    for each in (follower, first):
        exchange([each])
    assert first.num_servers == 2
    with database.writing(state.parents[1]) as connection:
        follower.leave(connection)
    exchange([first])
    assert first.num_servers == 1


def test_the_share_reaches_the_workers_stays_while_the_database_is_away_and_ends_with_the_server(
    state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stop, num_servers, seen, other = threading.Event(), SharedNumber(tmp_path / "servers"), [], CountExchange(state)
    exchange([other])

    def once_then_away(exchanges: list[CountExchange]) -> None:
        seen.append(num_servers.value)
        if len(seen) == 1:
            exchange(exchanges)
            return
        stop.set()
        raise StoreError("away")

    monkeypatch.setattr("tasks.release.deployment.EXCHANGE_S", 0.0)
    monkeypatch.setattr("tasks.release.deployment.exchange", once_then_away)
    follow([CountExchange(state)], stop, num_servers)
    assert (seen, num_servers.value) == ([0, 2], 2)
    exchange([other])
    assert other.num_servers == 1


def test_any_machine_reads_the_release_of_the_live_servers(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    assert deployed(state) is None
    first, follower = CountExchange(state), CountExchange(state)
    first.offer(AGAIN, {"2": outcomes(7, 1)})
    for each in (follower, first):
        exchange([each])
    found = deployed(state)
    assert found is not None
    assert (found.release, found.counts.outcomes["2"]) == (AGAIN, outcomes(7, 1))
    monkeypatch.setattr(database, "now", lambda _: now + LIVE_S + 5)
    assert deployed(state) is None


def test_an_unexpected_error_does_not_end_the_exchange(
    state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stop, seen = threading.Event(), []

    def failing(_: object) -> None:
        seen.append(None)
        if len(seen) > 1:
            stop.set()
        raise OSError("no lock can be made")

    monkeypatch.setattr("tasks.release.deployment.EXCHANGE_S", 0.0)
    monkeypatch.setattr("tasks.release.deployment.exchange", failing)
    follow([CountExchange(state)], stop, SharedNumber(tmp_path / "servers"))
    assert len(seen) == 2
