"""One process carries a project's rows to a tool; between machines: tests/time/test_champion.py."""

import pytest

from models.errors import StoreError
from tasks.host.carrying import carrying
from tasks.host.workspace import Workspace


def test_a_second_process_is_told_who_is_first(workspace: Workspace) -> None:
    workspace.make()
    with carrying(workspace, "mlflow", "tiny") as lease:
        assert lease is None, "the database is not shared"
        with (
            pytest.raises(StoreError, match=r"mlflow:tiny: another process carries its rows"),
            carrying(workspace, "mlflow", "tiny", 0),
        ):
            pass


def test_projects_and_tools_wait_for_no_other(workspace: Workspace) -> None:
    workspace.make()
    with (
        carrying(workspace, "mlflow", "a"),
        carrying(workspace, "mlflow", "b", 0),
        carrying(workspace, "other", "a", 0),
    ):
        pass
