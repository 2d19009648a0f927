"""The work pool of a workspace."""

import pytest

from tasks.host.workspace import Workspace
from tasks.prefect.worker import pool_environment, pool_of


def test_a_server_of_our_own_knows_one_pool(workspace: Workspace) -> None:
    assert pool_of(workspace) == "loopline"
    assert pool_environment(workspace) == {"LOOPLINE_HOME": str(workspace.root)}


def test_a_server_elsewhere_knows_one_for_each_workspace(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example:4200/api")
    other = Workspace(workspace.root.parent / "other")
    assert pool_of(workspace) != pool_of(other)
    assert pool_of(workspace).startswith(f"loopline-{workspace.root.name}-")
