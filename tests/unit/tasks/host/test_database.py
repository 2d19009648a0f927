"""The state database: made once, by whoever comes first; never half changed; refused if it cannot be read."""

from __future__ import annotations

import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import func, select, text

from models.errors import StoreError
from tasks.host import database
from tasks.host.tables import METADATA, decisions, events
from tasks.host.workspace import Workspace
from tests.clean_process import CleanProcess

pytestmark = pytest.mark.usefixtures("migrated_databases")


def a_row(project: str = "tiny") -> dict[str, object]:
    return {"project": project, "signal": "s1", "at": 1.0, "action": "wait", "content": {}}


def count(workspace: Workspace) -> int:
    with database.reading(workspace.state) as connection:
        return connection.scalar(select(func.count()).select_from(decisions)) or 0


def add(workspace: Workspace) -> None:
    with database.writing(workspace.state) as connection:
        connection.execute(decisions.insert(), a_row())


def test_the_migrations_make_the_declared_tables(workspace: Workspace) -> None:
    with database.writing(workspace.state) as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


def test_the_declared_versions_are_those_of_the_migrations() -> None:
    config = Config()
    config.set_main_option("script_location", str(database._MIGRATIONS))
    scripts = list(ScriptDirectory.from_config(config).walk_revisions())
    assert tuple(script.revision for script in reversed(scripts)) == database.REVISIONS


def test_a_workspace_without_a_database_reads_as_empty_and_gets_none(workspace: Workspace) -> None:
    assert count(workspace) == 0
    assert not (workspace.state / database.FILE).exists()


def test_what_was_committed_is_read_and_what_failed_is_not(workspace: Workspace) -> None:
    def fail_halfway() -> None:
        with database.writing(workspace.state) as connection:
            connection.execute(decisions.insert(), a_row())
            raise ZeroDivisionError

    add(workspace)
    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert count(workspace) == 1


def test_a_row_that_exists_is_updated_becomes_the_newest_and_leaves_other_columns(workspace: Workspace) -> None:
    def rows() -> list[tuple[object, ...]]:
        with database.reading(workspace.state) as connection:
            return [tuple(row) for row in connection.execute(select(events.c.id, events.c.state, events.c.sent))]

    row = {"project": "tiny", "content": {}, "is_open": True}
    with database.writing(workspace.state) as connection:
        first, second = ({**row, "id": name, "state": "waiting", "sent": 1.0} for name in "ab")
        database.upsert(connection, events, first, second, key_columns=["id"])
        database.upsert(connection, events, {**row, "id": "a", "state": "sent"}, key_columns=["id"])
        by_number = connection.scalars(select(events.c.id).order_by(events.c.number)).all()
    assert sorted(rows()) == [("a", "sent", 1.0), ("b", "waiting", 1.0)]
    assert by_number == ["b", "a"]


def test_a_reader_sees_one_moment_while_another_writes(workspace: Workspace) -> None:
    add(workspace)
    with database.reading(workspace.state) as connection:
        number = select(func.count()).select_from(decisions)
        before = connection.scalar(number)
        add(workspace)
        assert connection.scalar(number) == before
    assert count(workspace) == 2


def test_what_a_thread_reads_within_a_reading_is_of_its_moment(workspace: Workspace) -> None:
    add(workspace)
    with database.reading(workspace.state):
        before = count(workspace)
        add(workspace)
        assert count(workspace) == before
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(count, workspace).result() == 2
    assert count(workspace) == 2


def test_two_workspaces_are_read_at_once(workspace: Workspace, tmp_path: Path) -> None:
    other = Workspace(tmp_path / "other")
    other.make()
    add(other)
    with database.reading(workspace.state), database.reading(other.state):
        assert (count(workspace), count(other)) == (0, 1)


def test_a_workspace_that_cannot_be_written_is_read(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    add(workspace)
    monkeypatch.setattr(os, "access", lambda *_: False)
    before = sorted(workspace.state.iterdir())
    assert count(workspace) == 1
    assert sorted(workspace.state.iterdir()) == before


def test_who_cannot_write_reads_what_the_write_ahead_log_holds(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(workspace)
    with database.reading(workspace.state), ThreadPoolExecutor(1) as pool:  # this reader keeps SQLite's log alive
        assert count(workspace) == 1
        pool.submit(add, workspace).result()
        monkeypatch.setattr(os, "access", lambda *_: False)
        assert pool.submit(count, workspace).result() == 2


def test_threads_read_a_workspace_without_a_database(workspace: Workspace) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(count, [workspace] * 8)) == [0] * 8


def test_many_who_come_first_make_one_database(workspace: Workspace) -> None:
    failures: list[BaseException] = []

    def first() -> None:
        try:
            add(workspace)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=first) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert count(workspace) == 8


def test_a_forked_child_writes_by_a_connection_of_its_own(workspace: Workspace, tmp_path: Path) -> None:
    def work() -> int:
        add(workspace)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                add(workspace)
                code = 0
            finally:
                os._exit(code)
        return os.waitpid(child, 0)[1]

    assert CleanProcess(tmp_path / "process", work).result() == 0
    assert count(workspace) == 2


def test_a_file_that_a_kill_left_empty_is_made_ready(workspace: Workspace) -> None:
    (workspace.state / database.FILE).touch()
    assert count(workspace) == 0
    add(workspace)
    assert count(workspace) == 1


def test_a_database_that_was_removed_is_made_anew(workspace: Workspace) -> None:
    add(workspace)
    for path in workspace.state.glob(f"{database.FILE}*"):
        path.unlink()
    assert count(workspace) == 0
    add(workspace)
    assert count(workspace) == 1


def test_a_database_of_a_newer_loopline_is_refused_and_left_as_it_is(workspace: Workspace) -> None:
    path = workspace.state / database.FILE
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table alembic_version (version_num text)")
        connection.execute("insert into alembic_version values ('9999')")
    before = path.read_bytes()
    for use in (count, add):
        with pytest.raises(StoreError, match=r"state\.db: has schema 9999, expected \d+ or older: a newer Loopline"):
            use(workspace)
    assert path.read_bytes() == before


def test_a_damaged_database_is_a_short_error_with_its_cure(workspace: Workspace) -> None:
    (workspace.state / database.FILE).write_bytes(b"no database at all" * 500)
    with pytest.raises(StoreError, match=r"state\.db: it is damaged: put it back from a copy, or move it away"):
        count(workspace)


def test_a_full_disk_is_a_short_error_and_nothing_is_half_written(workspace: Workspace) -> None:
    def fill() -> None:
        with database.writing(workspace.state) as connection:
            pages = connection.scalar(text("pragma page_count"))
            connection.exec_driver_sql(f"pragma max_page_count = {pages}")
            for _ in range(1000):
                connection.execute(decisions.insert(), a_row("x" * 1000))

    add(workspace)
    with pytest.raises(StoreError, match="the disk is full"):
        fill()
    assert count(workspace) == 1


@pytest.mark.parametrize("address", ["mysql://h/db", "http://h", "garbage"])
def test_an_address_of_another_kind_is_refused(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("LOOPLINE_STATE_URL", address)
    with pytest.raises(Exception, match=r"LOOPLINE_STATE_URL: got .*, expected postgresql://: as "):
        add(workspace)
