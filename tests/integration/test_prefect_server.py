"""The workspace's own Prefect server: one a workspace, reused, ended when nobody needs it, never left behind."""

import base64
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import psutil
import pytest

from tasks.host import processes, server_access
from tasks.host.workspace import Workspace
from tasks.platform import platform
from tasks.prefect import flow_runs, prefect_server
from tasks.prefect.flow_runs import ask
from tasks.prefect.prefect_server import PrefectServer, is_healthy
from tasks.prefect.worker import pool_of, worker_name
from tests.running import begin_prefect, eventually
from tests.wide import wide

IDLE_S = 2


@pytest.fixture
def server(workspace: Workspace, empty_prefect: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrefectServer]:
    """The server of an empty workspace, ended whatever happens."""
    monkeypatch.setenv("LOOPLINE_SERVER_IDLE_S", "20")
    begin_prefect(workspace.root, empty_prefect)
    made = PrefectServer(workspace)
    yield made
    made.stop()


def gone(identity: dict[str, object]) -> Callable[[], bool]:
    return lambda: not processes.is_alive(identity)


def lets_nobody_in(url: str, secret: str) -> None:
    """Whoever may create runs has a command line: no page of another site may, nor a local user without the secret."""
    assert answer(url) == 401
    assert answer(url, Authorization="Basic bG9vcGxpbmU6d3Jvbmc=") == 401
    assert answer(url, Host="evil.example") == 400
    assert answer(url.removesuffix("/api"), Host="evil.example") == 400, "Prefect's page itself"
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    assert answer(url, "OPTIONS", Origin="https://evil.example", **asks) == 400
    known = {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}
    assert answer(url, Origin="https://evil.example", **known) == 403
    assert answer(url, Origin=url.removesuffix("/api"), **known) == answer(url, **known) == 200
    assert answer(url, "OPTIONS", Origin=url.removesuffix("/api"), **asks) == 200


def answer(url: str, method: str = "POST", **headers: str) -> int:
    """The status of a request that reads flow runs, or of a browser's question whether a page may do so."""
    body = None if method == "OPTIONS" else b"{}"
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/flow_runs/filter", body, {**kind, **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answered:
            return int(answered.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def hears_automations(url: str) -> bool:
    services = dict(ask(url, "admin/settings", None, "GET")["server"]["services"])
    return {services[name]["enabled"] for name in ("foreman", "late_runs", "scheduler", "triggers")} == {True}


@pytest.mark.parametrize("is_cold", [False, wide(True)], ids=["forked", "cold"])  # cold, as it is for a user
def test_it_starts_is_reused_put_right_after_a_kill_and_ends_when_idle(
    server: PrefectServer, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, is_cold: bool
) -> None:
    monkeypatch.setenv("LOOPLINE_SERVER_IDLE_S", str(IDLE_S))
    with server.lease():
        with mock.patch.object(prefect_server, "sys", sys if is_cold else prefect_server.sys):
            server.start()
        url = server.wait()
        assert url.startswith("http://127.0.0.1:")
        server_access.use(workspace, url)
        assert ask(url, "block_types/filter", {}) == [], "a loop has no use for Prefect's catalogue: it costs seconds"
        memory = workspace.state / "prefect" / "memo_store.toml"
        assert not memory.exists(), "nor has it imported all collections to see whether the catalogue has changed"
        assert not hears_automations(url), "nor for what works with deployments"
        lets_nobody_in(url, server_access.make_secret(workspace))
        state = server.state()
        assert state is not None
        other = PrefectServer(workspace)
        with other.lease():
            other.start()
            assert other.wait() == url
            assert other.state() == state, "one server"
        os.kill(state["owner"]["pid"], signal.SIGKILL)
        eventually(gone(state["owner"]))
        assert server.url() is None
        leased = time.monotonic()
        workspace.platform.mkdir()  # as of a platform that was up, whose automations a loop's events concern
        server.start()
        assert server.wait() == url, "the port of last time"
        assert hears_automations(url)
        again = server.state()
        assert again is not None
        assert psutil.Process(again["owner"]["pid"]).children() == [], "one process"
        eventually(lambda: time.monotonic() > leased + IDLE_S + 2)
        assert is_healthy(url), "a living lease keeps it up longer than the idle time"
    eventually(gone(again["owner"]))
    assert not is_healthy(url)
    assert server.url() is None


def test_stop_ends_it_by_its_own_pid(server: PrefectServer) -> None:
    server.start()
    server.address()
    state = server.state()
    assert state is not None
    assert server.stop()
    assert server.url() is None
    assert not processes.is_alive(state["owner"])


def running(api: str, pool: str, count: int) -> list[str]:
    """Ids of flow runs of a new pool that Prefect lists as running, without a process."""
    flow = ask(api, "flows/", {"name": pool})
    ask(api, "work_pools/", {"name": pool, "type": "process"})
    deployment = ask(api, "deployments/", {"name": pool, "flow_id": flow["id"], "work_pool_name": pool})
    runs = [ask(api, f"deployments/{deployment['id']}/create_flow_run", {})["id"] for _ in range(count)]
    for run in runs:
        ask(api, f"flow_runs/{run}/set_state", {"state": {"type": "RUNNING"}, "force": True})
    return runs


def states(api: str, runs: list[str]) -> list[str]:
    return [ask(api, "flow_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})[0]["state_type"] for run in runs]


def test_all_runs_without_a_process_are_taken_up_whatever_a_page_holds(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_runs, "PAGE", 2)
    runs = running(api, "left", 5)
    assert len(flow_runs.take_up(api, "left")) == 5
    assert states(api, runs) == ["SCHEDULED"] * 5
    assert flow_runs.take_up(api, "left") == [], "each once"


def test_only_the_runs_of_lost_machines_are_taken_up(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert flow_runs.online_workers(api, "machines") == set(), "nobody has made the pool yet"
    runs = running(api, "machines", 3)
    ask(api, "work_pools/machines/workers/heartbeat", {"name": "living"})
    for run, worker in zip(runs, ("living", "lost"), strict=False):  # the third was never labelled
        ask(api, f"flow_runs/{run}/labels", {flow_runs.WORKER_LABEL: worker}, "PATCH")
    online = flow_runs.online_workers(api, "machines")
    assert online == {"living"}
    assert flow_runs.take_up(api, "machines", online) == [], "a worker may label a run in this moment"
    monkeypatch.setattr(flow_runs, "BEGIN_AGAIN_S", 0.0)
    assert len(flow_runs.take_up(api, "machines", online)) == 2
    assert states(api, runs) == ["RUNNING", "SCHEDULED", "SCHEDULED"]


def test_a_worker_that_was_ended_is_offline_at_once(
    api: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", api)
    pool = pool_of(workspace)
    ask(api, "work_pools/", {"name": pool, "type": "process"})
    for name in (worker_name(workspace), "another"):
        ask(api, f"work_pools/{pool}/workers/heartbeat", {"name": name})
    platform.stop_worker(workspace)
    assert flow_runs.online_workers(api, pool) == {"another"}
    assert (flow_runs.pool_type(api, pool), flow_runs.pool_type(api, "no-such-pool")) == ("process", None)
