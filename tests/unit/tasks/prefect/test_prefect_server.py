"""The lease and the server's watch, without a server; the server itself is tests/integration's."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from models.errors import StoreError
from models.files import write_json
from tasks.host import processes
from tasks.host.locks import tried
from tasks.host.workspace import Workspace
from tasks.prefect import prefect_server
from tasks.prefect.prefect_server import OWNER_LOCK, PrefectServer, is_healthy, is_working
from tests.absent_tool import away


@pytest.fixture
def leases(workspace: Workspace) -> Path:
    folder = workspace.state / "prefect" / "leases"
    folder.parent.mkdir(parents=True)
    return folder


def test_a_lease_names_this_process_and_goes_with_the_block(workspace: Workspace, leases: Path) -> None:
    server = PrefectServer(workspace)
    with server.lease():
        (lease,) = leases.iterdir()
        assert json.loads(lease.read_text())["pid"] == os.getpid()
        with server.lease():
            assert len(list(leases.iterdir())) == 2
    assert list(leases.iterdir()) == []


def test_a_lease_goes_when_the_block_fails(workspace: Workspace, leases: Path) -> None:
    with pytest.raises(KeyError), PrefectServer(workspace).lease():
        raise KeyError
    assert list(leases.iterdir()) == []


class FakeServer:
    """A server that runs until it should end."""

    def __init__(self, ended: bool = False) -> None:
        self.should_exit = ended


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(prefect_server, "time", made)
    monkeypatch.setattr(prefect_server, "IDLE_S", 10.0)
    return made


def watch_until_its_end(leases: Path, server: Any) -> None:
    prefect_server._watch(leases, server)


def test_the_watch_ends_when_nobody_has_a_lease(leases: Path, clock: Clock) -> None:
    watch_until_its_end(leases, FakeServer())
    assert 10 <= clock.now <= 12


def test_a_dead_processes_lease_does_not_count_and_is_taken_away(leases: Path, clock: Clock) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    dead = {**processes.identity(os.getpid()), "pid": child.pid}
    child.wait()
    leases.mkdir(parents=True)
    (leases / "dead.json").write_text(json.dumps(dead))
    (leases / "torn.json").write_text("{")
    watch_until_its_end(leases, FakeServer())
    assert clock.now <= 12
    assert not (leases / "dead.json").exists()


def test_a_living_processes_lease_keeps_the_server_up(workspace: Workspace, leases: Path, clock: Clock) -> None:
    with PrefectServer(workspace).lease():
        (lease,) = leases.iterdir()
        sleep = clock.sleep

        def until_a_minute(seconds: float) -> None:
            sleep(seconds)
            if clock.now >= 60:
                lease.unlink(missing_ok=True)

        clock.sleep = until_a_minute  # type: ignore[method-assign]
        watch_until_its_end(leases, FakeServer())
    assert 69 <= clock.now <= 72


def test_the_watch_ends_when_the_workspace_was_deleted(leases: Path, clock: Clock) -> None:
    shutil.rmtree(leases.parent)
    watch_until_its_end(leases, FakeServer())
    assert clock.now == prefect_server.OWNER_POLL_S


def test_the_watch_of_a_server_without_automations_ends_when_a_platform_is_up(leases: Path, clock: Clock) -> None:
    platform = leases.parent / "supervisor.json"
    platform.touch()
    with PrefectServer(Workspace(leases.parents[2])).lease():
        prefect_server._watch(leases, FakeServer(), platform)  # type: ignore[arg-type]
    assert clock.now == prefect_server.OWNER_POLL_S


def test_the_watch_ends_with_the_server(leases: Path, clock: Clock) -> None:
    watch_until_its_end(leases, FakeServer(ended=True))
    assert clock.now == 0


def test_a_server_whose_end_hangs_is_ended(leases: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    server = FakeServer()
    prefect_server._end_in_time(leases, server)  # type: ignore[arg-type]
    assert (server.should_exit, ended) == (True, [1])
    assert clock.now >= 10 + prefect_server.END_S


@pytest.mark.parametrize("content", [None, "", "{"])
def test_no_state_is_no_server(workspace: Workspace, content: str | None) -> None:
    if content is not None:
        (workspace.state / "prefect").mkdir()
        (workspace.state / "prefect" / "server.json").write_text(content)
    assert PrefectServer(workspace).url() is None
    assert PrefectServer(workspace).stop() is False


def test_a_dead_owners_state_is_no_server(workspace: Workspace) -> None:
    folder = workspace.state / "prefect"
    folder.mkdir()
    owner = processes.identity()
    for living, url in ((True, "http://127.0.0.1:4200/api"), (False, None)):
        told = owner if living else {**owner, "started": 1.0}
        (folder / "server.json").write_text(json.dumps({"port": 4200, "owner": told}))
        assert PrefectServer(workspace).url() == url


ELSEWHERE = {"host": "macbook.office.lan", "pid": os.getpid(), "started": "deadbeef/1"}


def test_a_owner_noted_under_another_host_lives_while_it_holds_its_lock_and_is_never_signalled(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody starts a server once the host is renamed, and `loopline down` ends whoever has that pid here."""
    folder, server = workspace.state / "prefect", PrefectServer(workspace)
    monkeypatch.setattr(os, "kill", lambda pid, number: pytest.fail(f"{pid} was sent {number}"))
    write_json(folder / "server.json", {"port": 4200, "owner": ELSEWHERE})
    assert server.url() is None
    assert server.stop() is False
    with tried(folder / OWNER_LOCK):
        assert server.url() == "http://127.0.0.1:4200/api"
        assert server.stop() is False


def test_a_lease_of_another_host_keeps_no_server_up(workspace: Workspace, leases: Path) -> None:
    write_json(leases / "elsewhere.json", ELSEWHERE)
    assert not PrefectServer(workspace).is_leased()
    assert (leases / "elsewhere.json").exists(), "it may be another owner's"


def test_nothing_healthy_at_a_dead_address() -> None:
    assert not is_healthy("http://127.0.0.1:1/api")
    assert not is_healthy("not a url")
    assert not is_working("http://127.0.0.1:1/api")
    assert not is_working("not a url")


def test_a_server_that_says_only_that_it_is_healthy_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_server, "ANSWER_S", 0.2)
    with away("healthy") as (address, _):
        assert is_healthy(f"{address}/api")
        assert not is_working(f"{address}/api")


def test_a_server_that_does_not_come_names_its_log(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrefectServer, "start", lambda self: None)
    with pytest.raises(StoreError, match=r"server\.log"):
        PrefectServer(workspace).wait(timeout_s=0.2)


def test_the_port_of_last_time_is_taken_again(tmp_path: Path) -> None:
    memory = tmp_path / "port"
    with contextlib.closing(prefect_server._listener(memory)) as first:
        port = first.getsockname()[1]
        with contextlib.closing(prefect_server._listener(memory)) as beside:
            assert beside.getsockname()[1] != port, "another platform has it"
    memory.write_text(str(port))
    with contextlib.closing(prefect_server._listener(memory)) as again:
        assert again.getsockname()[1] == port
    memory.write_text("not a port")
    with contextlib.closing(prefect_server._listener(memory)) as other:
        assert other.getsockname()[1] > 0
