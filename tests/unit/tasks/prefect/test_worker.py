"""The work pool of a workspace."""

from unittest import mock

import pytest

from tasks.host.workspace import Workspace
from tasks.prefect import worker
from tasks.prefect.worker import pool_environment, pool_of


def test_a_server_of_our_own_knows_one_pool(workspace: Workspace) -> None:
    assert pool_of(workspace) == "loopline"
    assert pool_environment(workspace) == {"LOOPLINE_HOME": str(workspace.root)}


def test_a_server_elsewhere_knows_one_for_each_workspace(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example:4200/api")
    other = Workspace(workspace.root.parent / "other")
    assert pool_of(workspace) != pool_of(other)
    assert pool_of(workspace).startswith(f"loopline-{workspace.root.name}-")


def test_machines_with_one_state_database_serve_one_pool(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example:4200/api")
    monkeypatch.setenv("LOOPLINE_STATE_URL", "postgresql://ada:one@db.example/loopline")
    other = Workspace(workspace.root.parent / "other")
    pool = pool_of(workspace)
    monkeypatch.setattr("socket.gethostname", lambda: "another-machine")
    monkeypatch.setenv("LOOPLINE_STATE_URL", "postgresql://ada:two@db.example/loopline")
    assert pool_of(other) == pool, "neither folder, nor host, nor password names it"
    assert pool_environment(other) == {}, "the folder is another one on each machine"
    monkeypatch.setenv("LOOPLINE_STATE_URL", "postgresql://ada@db.example/another")
    assert pool_of(workspace) != pool


def test_a_worker_waits_for_a_pool_of_its_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    types = mock.Mock(side_effect=["process", "process", None])
    monkeypatch.setattr(worker, "pool_type", types)
    monkeypatch.setattr(worker, "POLL_S", 0.0)
    worker._wait_for_type("http://127.0.0.1:9/api", "loopline", "kubernetes")
    assert types.call_count == 3
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("work pool loopline: its type is process, expected kubernetes: waiting")
