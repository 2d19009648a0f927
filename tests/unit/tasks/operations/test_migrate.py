"""A move to Postgres is refused before anything is changed; the move itself is in tests/fault and tests/integration."""

import socket

import filelock
import pytest

from models.errors import StoreError, UsageError
from models.files import write_json
from tasks.host import processes
from tasks.host.workspace import Workspace
from tasks.operations.migrate import move, plan_moves
from tasks.prefect.prefect_server import OWNER_LOCK


@pytest.mark.parametrize("to", ["http://h:1/loopline", "sqlite:///a.db", "postgresql://u@h", "loopline"])
def test_an_address_that_is_none_of_a_database_is_refused(workspace: Workspace, to: str) -> None:
    with pytest.raises(UsageError, match=r"^--to: got .*expected .*postgresql://user@host") as caught:
        plan_moves(workspace, to)
    assert "unset" not in str(caught.value)


def test_a_server_that_is_away_is_a_short_error(workspace: Workspace) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # nobody listens
        port = probe.getsockname()[1]
        with pytest.raises(
            StoreError, match=rf"127\.0\.0\.1:{port}/lab: cannot be used .*nothing was copied"
        ) as caught:
            plan_moves(workspace, f"postgresql://u:secret@127.0.0.1:{port}/lab")
    assert "secret" not in str(caught.value)


def test_nothing_moves_while_prefects_server_runs(workspace: Workspace) -> None:
    folder = workspace.state / "prefect"
    folder.mkdir()
    write_json(folder / "server.json", {"port": 1, "owner": processes.identity()})
    with (
        filelock.FileLock(folder / OWNER_LOCK),
        pytest.raises(StoreError, match="runs: end it first by `loopline down`"),
    ):
        move(workspace, "postgresql://u@127.0.0.1:1/lab", print)


def test_nothing_moves_while_the_platform_runs(workspace: Workspace) -> None:
    workspace.platform.mkdir()
    write_json(workspace.platform / "supervisor.json", {"socket": "s", "process": processes.identity()})
    with pytest.raises(StoreError, match="the platform runs: end it first by `loopline down`; nothing was changed"):
        move(workspace, "postgresql://u@127.0.0.1:1/lab", print)
