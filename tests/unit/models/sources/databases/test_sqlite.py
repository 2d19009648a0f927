"""Rows of SQLite: values as they are, and what its loose types make wrong."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from models.errors import DataError
from models.sources.databases.database import BATCH_ROWS
from models.sources.databases.databases import opened


def rows(folder: Path, sql: str, address: str = "sqlite:///shop.db") -> list[dict[str, Any]]:
    with opened(address, folder, "query") as (_, session):
        schema = session.schema(sql)
        return pa.Table.from_batches(session.batches(sql, schema), schema).to_pylist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("sqlite")
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute('create table orders (id integer, price real, "wei""rd name" text, bytes blob, empty text)')
        database.execute("insert into orders values (9223372036854775807, .1, 'a;b', x'00ff', null)")
        database.execute("create table loose (x)")
        database.executemany("insert into loose values (?)", [(1,)] * BATCH_ROWS + [("text",)])
        database.execute("create table mixed (x)")
        database.executemany("insert into mixed values (?)", [(1,)] * BATCH_ROWS + [(2.5,)])
    return folder


def test_values_are_exact(folder: Path) -> None:
    row = {"id": 2**63 - 1, "price": 0.1, 'wei"rd name': "a;b", "bytes": b"\x00\xff", "empty": None}
    assert rows(folder, "select * from orders -- all") == [row]
    assert rows(folder, "select id from orders where id < 0") == []


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select x from loose", r"column 'x' holds .* behind rows of whole numbers: write cast\(\"x\" as text\)"),
        ("select x from mixed", r"column 'x' holds double behind rows of whole numbers: write cast\(\"x\" as real\)"),
        ("select * from gone", "there is no such table"),
        ("select gone from orders", "there is no such column"),
        ("selec 1", "the query is no SQL"),
        ("select id, id from orders", "several columns share a name: 'id'"),
        ("select 1; drop table orders", "the query is no SQL"),
        ("insert into orders (id) values (1)", "a source is only read"),
    ],
)
def test_what_is_wrong_is_one_line(folder: Path, sql: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        rows(folder, sql)
    assert "\n" not in str(caught.value)


def test_more_rows_than_a_batch_come_once_each(folder: Path) -> None:
    sql = "select x from loose where typeof(x) = 'integer' union all select id from orders"
    assert len(rows(folder, sql)) == BATCH_ROWS + 1


def test_a_file_that_is_none_is_named(folder: Path) -> None:
    (folder / "text.db").write_text("no database at all, and long enough to be looked at" * 100)
    for name, message in (("gone", "there is no file"), ("text", "there is no such database")):
        with pytest.raises(DataError, match=message):
            rows(folder, "select * from t", f"sqlite:///{name}.db")
