"""The way back: an upgrade keeps the database as it was, and a database that was moved is refused until taken back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, func, select

from models.errors import StoreError
from tasks.host import database, old_schema
from tasks.host.database_copy import contents_of, mark_moved
from tasks.host.tables import decisions
from tasks.host.workspace import Workspace

OLD = "0005"
ADDRESS = "postgresql://db.example.org/lab"


def make_old(url: str) -> None:
    """A database as an older Loopline left it, with one decision."""
    config = Config()
    config.set_main_option("script_location", str(database._MIGRATIONS))
    engine = create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, OLD)
        row = {"project": "tiny", "signal": "s1", "at": 1.0, "action": "wait", "content": {}}
        connection.execute(decisions.insert(), row)
    engine.dispose()


def revision_of(file: Path) -> str:
    with closing(sqlite3.connect(file)) as connection:
        return str(connection.execute("select version_num from alembic_version").fetchone()[0])


def count(workspace: Workspace) -> int:
    with database.reading(workspace.state) as connection:
        return connection.scalar(select(func.count()).select_from(decisions)) or 0


@pytest.fixture
def file(workspace: Workspace) -> Path:
    """The file of a state database of an older Loopline, all of whose rows are still in the write-ahead log."""
    path = workspace.state / database.FILE
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = wal")
    make_old(f"sqlite:///{path}")
    return path


def test_an_upgrade_keeps_the_file_as_it_was_and_the_way_back_is_to_put_it_in_its_place(
    workspace: Workspace, file: Path
) -> None:
    with closing(sqlite3.connect(file)) as other:  # an older process: it keeps the log from being folded into the file
        other.execute("insert into decisions (project, signal, at, action, content) values ('a', 's', 1, 'wait', '{}')")
        other.commit()
        assert count(workspace) == 2
    copy = file.with_name(f"state.db.before-{database.REVISIONS[-1]}")
    assert (revision_of(file), revision_of(copy)) == (database.REVISIONS[-1], OLD)
    assert contents_of(copy).rows["decisions"] == 2
    assert list(workspace.state.glob(".*.tmp*")) == []
    copy.replace(file)
    assert count(workspace) == 2
    assert copy.exists(), "the next upgrade keeps it again"


def test_a_new_database_has_no_copy(workspace: Workspace) -> None:
    with database.writing(workspace.state):
        pass
    assert [path.name for path in workspace.state.glob("state.db.before*")] == []


def test_a_copy_that_a_kill_cut_short_is_made_anew(workspace: Workspace, file: Path) -> None:
    (workspace.state / f".state.db.before-{database.REVISIONS[-1]}.tmp").write_bytes(b"")
    assert count(workspace) == 1
    assert list(workspace.state.glob(".*.tmp*")) == []


def test_a_copy_that_cannot_be_written_stops_the_upgrade(workspace: Workspace, file: Path) -> None:
    (workspace.state / f".state.db.before-{database.REVISIONS[-1]}.tmp").mkdir()
    with pytest.raises(StoreError, match="cannot be written: it cannot be opened"):
        count(workspace)
    assert revision_of(file) == OLD


def test_a_moved_file_is_refused_with_its_new_address_until_it_is_taken_back(workspace: Workspace) -> None:
    with database.writing(workspace.state):
        pass
    path = workspace.state / database.FILE
    assert old_schema.moved_to(path) == ""
    with pytest.raises(StoreError, match="was not moved to Postgres"):
        old_schema.take_back(path)
    mark_moved(path, contents_of(path), ADDRESS)
    for use in (count, lambda workspace: database.writing(workspace.state).__enter__()):
        with pytest.raises(StoreError, match=f"moved it to {ADDRESS}: set LOOPLINE_STATE_URL to that address, or"):
            use(workspace)
    assert old_schema.moved_to(path) == ADDRESS
    assert revision_of(path) not in database.REVISIONS, "an older Loopline refuses it too"
    assert old_schema.take_back(path) == ADDRESS
    assert count(workspace) == 0


def test_a_file_that_changed_after_it_was_copied_is_not_marked(workspace: Workspace, file: Path) -> None:
    contents = contents_of(file)
    count(workspace)
    with database.writing(workspace.state) as connection:
        connection.execute(decisions.delete())
    with pytest.raises(StoreError, match="was changed after it was copied"):
        mark_moved(file, contents, ADDRESS)
    assert old_schema.moved_to(file) == ""
    assert count(workspace) == 0
