"""A move to Postgres is refused before anything is changed; the move itself is in tests/fault and tests/integration."""

import socket

import filelock
import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import timeout_from_conninfo
from sqlalchemy import make_url

from flows.commands.upkeep.migrate import command
from models.errors import StoreError, UsageError
from models.files import write_json
from tasks.host import processes, stores
from tasks.host.database_copy import Contents
from tasks.host.store_addresses import STATE_URL
from tasks.host.workspace import Workspace
from tasks.operations import migrate
from tasks.operations.migrate import Move, move, plan_moves
from tasks.prefect.prefect_server import OWNER_LOCK


@pytest.mark.parametrize("to", ["http://h:1/loopline", "sqlite:///a.db", "postgresql://u@h", "loopline"])
def test_an_address_that_is_none_of_a_database_is_refused(workspace: Workspace, to: str) -> None:
    with pytest.raises(UsageError, match=r"^--to: got .*expected .*postgresql://user@host") as caught:
        plan_moves(workspace, to)
    assert "unset" not in str(caught.value)


def test_a_name_that_postgres_would_cut_is_refused(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match=r"^--to: got database x+, expected a name of at most 55 bytes"):
        plan_moves(workspace, f"postgresql://u@127.0.0.1:1/{'x' * 56}")


def test_a_parameter_that_one_of_the_drivers_does_not_know_is_refused(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match=r"^--to: got the parameter sslrootcert, expected only .*PGSSLROOTCERT"):
        plan_moves(workspace, "postgresql://u@127.0.0.1:1/lab?sslmode=verify-full&sslrootcert=ca.pem")


def test_a_server_that_does_not_answer_is_not_waited_for(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def connect(**options: object) -> None:
        seen.append(timeout_from_conninfo(options))
        raise psycopg.OperationalError("connection timeout expired")

    monkeypatch.setenv("PGCONNECT_TIMEOUT", stores.environment(workspace)["PGCONNECT_TIMEOUT"])
    monkeypatch.setattr(psycopg, "connect", connect)
    for to in ("postgresql://u@h/lab", "postgresql://u@h/lab?connect_timeout=3"):
        with pytest.raises(StoreError, match=r"cannot be used \(connection timeout expired\)"):
            plan_moves(workspace, to)
    assert seen == [10, 10, 3, 3]


def test_the_addresses_are_shown_as_a_shell_reads_them(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    to = "postgresql+psycopg://u:secret@h/lab?sslmode=require&connect_timeout=3"
    planned = Move("state", STATE_URL, make_url(to), "nothing here", Contents({}, ""), True)
    monkeypatch.setattr(stores, "open_workspace", lambda: workspace)
    monkeypatch.setattr(migrate, "move", lambda *_: [planned])
    shown = CliRunner().invoke(command, ["--to", to, "--yes"]).output
    assert f"export {STATE_URL}='postgresql://u:***@h/lab?" in shown
    assert "Write the password for ***." in shown
    assert "secret" not in shown


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
