"""SQLite's errors have a cure; a file in a folder that cannot be written is read without a file beside it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from tasks.host.sqlite_files import cure, read_only


def test_every_fault_of_a_file_has_its_cure(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    file.write_bytes(b"no database" * 100)
    errors = []
    for address, statement in (
        (f"{file.as_uri()}?mode=ro", "select 1 from sqlite_master"),
        (f"{(tmp_path / 'none' / 'b.db').as_uri()}?mode=ro", "select 1"),
        (":memory:", "select wrong"),
    ):
        with pytest.raises(sqlite3.Error) as caught, contextlib.closing(sqlite3.connect(address, uri=True)) as opened:
            opened.execute(statement)
        errors.append(cure(caught.value, "put it back"))
    assert errors == [
        "it is damaged: put it back",
        "it cannot be opened: change its owner, or set LOOPLINE_HOME to a folder that can be written",
        None,
    ]


def test_a_folder_that_cannot_be_written_is_read_without_a_file_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, who may write everywhere."""
    file = tmp_path / "a b.db"
    with contextlib.closing(sqlite3.connect(file)) as writer:
        writer.execute("pragma journal_mode = wal")
        writer.execute("create table counts (number)")
        writer.commit()
        assert "immutable" not in read_only(file)
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        assert "immutable" not in read_only(file), "the log has rows that the file does not have yet"
    before = sorted(tmp_path.iterdir())
    with contextlib.closing(sqlite3.connect(read_only(file), uri=True)) as reader:
        assert reader.execute("select count(*) from counts").fetchone() == (0,)
        assert sorted(tmp_path.iterdir()) == before == [file]
