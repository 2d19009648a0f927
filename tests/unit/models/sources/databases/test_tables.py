"""Of many rows a sample is read: the first ones and some from all over, none twice."""

import sqlite3
from pathlib import Path

import duckdb
import pytest

from models.sources.databases import tables
from models.sources.databases.databases import opened


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_a_sample_has_the_first_rows_and_others_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setattr(tables, "CELLS", 4000)
    if scheme == "duckdb":
        with duckdb.connect(tmp_path / "shop") as connection:
            connection.execute("create table t as select range as id, 'x' || (range % 3) as word from range(20000)")
    else:
        with sqlite3.connect(tmp_path / "shop") as database:
            database.execute("create table t (id integer, word text)")
            database.executemany("insert into t values (?, ?)", [(n, f"x{n % 3}") for n in range(20_000)])
    with opened(f"{scheme}:///shop", tmp_path, "query") as (database_row, session):
        sample = tables.sample_of_query(database_row, session, "select * from t")
    ids = sample.table.column("id").to_pylist()
    assert (sample.num_rows, sample.num_first, sample.is_whole) == (20_000, 500, False)
    assert ids[:500] == list(range(500))
    assert len(ids) == len(set(ids))
    assert 1000 < len(ids) <= 2500
    assert max(ids) > 15_000


def test_rows_that_are_wide_fill_a_sample_sooner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SAMPLE_BYTES", 100_000)
    with duckdb.connect(tmp_path / "shop") as connection:
        connection.execute("create table t as select range as id, repeat('x', 1000) as text from range(40000)")
    with opened("duckdb:///shop", tmp_path, "query") as (database, session):
        sample = tables.sample_of_query(database, session, "select * from t")
    assert sample.num_rows == 40_000
    assert sample.table.num_rows < 40_000


def test_a_table_of_many_rows_is_not_counted_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_COUNTED", 5)
    with sqlite3.connect(tmp_path / "shop") as database:
        database.execute("create table t (id integer)")
        database.executemany("insert into t values (?)", [(n,) for n in range(9)])
    with opened("sqlite:///shop", tmp_path, "query") as (database_row, session):
        (table,) = tables.counted(tables.tables_of(database_row, session), database_row, session)
    assert table.size == "over 5 rows, 1 column"
