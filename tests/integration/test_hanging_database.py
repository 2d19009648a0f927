"""A state database that hangs delays no rollback: the thread that looks for moves waits alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tasks.host import processes
from tasks.host.store_addresses import STATE_URL
from tasks.host.workspace import Workspace
from tasks.release import controller, deployment
from tasks.release.controller import ReleaseController, follow, guard
from tasks.release.settings import ServerSettings
from tasks.release.shared_state import SharedNumber, VersionOutcomes, WorkerReport
from tests.postgres import Server, is_installed, new_database, postgres_server
from tests.serving import crown

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]
LONGEST_S = 30.0
SEEN_TWICE_S = 2.5
"""Within it, each of the threads that ask the database has asked it at least twice."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server() as made:
        yield made


@pytest.fixture
def lead(server: Server, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReleaseController]:
    """A controller with all of its threads, without workers, which has promoted version 2 over version 1."""
    monkeypatch.setenv(STATE_URL, new_database(server.address, "hanging"))
    monkeypatch.setattr(controller, "try_out", lambda *_: None)
    settings = ServerSettings(str(workspace.root), ("tiny",))
    crown(workspace, "tiny", "1")
    found, stop = ReleaseController(settings, "tiny"), threading.Event()
    monkeypatch.setattr(found._background, "give_back", lambda *_: None)
    assert found.exchange is not None
    threads = [threading.Thread(target=act, args=(found, stop)) for act in (follow, guard)]
    number = SharedNumber(settings.servers_path)
    threads.append(threading.Thread(target=deployment.follow, args=([found.exchange], stop, number)))
    for thread in threads:
        thread.start()
    try:
        until(lambda: stable(found) == "1")
        crown(workspace, "tiny", "2")
        until(lambda: stable(found) == "2")
        yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join(LONGEST_S)
        found.end()


def stable(lead: ReleaseController) -> str | None:
    release = lead.release_state.release()
    return release.stable if release else None


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_failing_version_is_rolled_back_while_the_database_hangs(
    server: Server, lead: ReleaseController, workspace: Workspace
) -> None:
    with server.paused():
        time.sleep(SEEN_TWICE_S)
        tallies = {"2": VersionOutcomes(answers=50, failed=50)}
        lead.release_state.report(WorkerReport(process=processes.identity(), loaded=["1", "2", "3"], tallies=tallies))
        until(lambda: stable(lead) == "1")
    crown(workspace, "tiny", "3")
    until(lambda: stable(lead) == "3")
