"""A new project reads a table that is named behind an address, or SQL; a spec holds no password."""

import sqlite3
from pathlib import Path

import duckdb
import pytest

from models.errors import DataError, UsageError
from models.sources.databases.origin import UnnamedTableError, is_database, query_origin

ODD = 'Big "T" #1'


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute("create table orders (id integer primary key, price real)")
        database.executemany("insert into orders (price) values (?)", [(n / 4,) for n in range(40)])
        database.execute('create table "Big ""T"" #1" as select * from orders limit 12')
        database.execute("create table empty (id integer)")
        database.execute("create view gone as select * from no_such_table")
    with duckdb.connect(folder / "one.duckdb") as database:
        database.execute("create schema s; create table s.only as select range as id from range(30)")
    return folder


def test_what_is_a_database_is_told_by_the_scheme_also_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", "mysql://host/shop")
    monkeypatch.setenv("FILE", "s3://bucket/a.csv")
    assert [is_database(text) for text in ("${URL}#orders", "postgres://h/n", "sqlite:///a.db#t")] == [True] * 3
    assert [is_database(text) for text in ("${FILE}", "s3://bucket/a.csv", "a.csv", "book.xlsx#May")] == [False] * 4


@pytest.mark.parametrize("name", ["orders", ODD])
def test_a_table_is_a_query_of_its_whole_file(shop: Path, name: str) -> None:
    query, sample = query_origin(f"sqlite:///shop.db#{name}", None, shop)
    quoted = name.replace('"', '""')
    assert (query.sql, query.at) == (f'select * from "{quoted}"', f"sqlite:///{shop / 'shop.db'}")
    assert sample.is_whole
    assert sample.table.column_names == ["id", "price"]


def test_without_a_name_the_tables_are_told_and_an_only_one_is_taken(shop: Path) -> None:
    with pytest.raises(UnnamedTableError, match="has 4 tables: name one, as in --from 'sqlite:") as caught:
        query_origin("sqlite:///shop.db", None, shop)
    assert [(table.text, table.size) for table in caught.value.tables] == [
        (ODD, "12 rows, 2 columns"),
        ("empty", "0 rows, 1 column"),
        ("gone", "view"),
        ("orders", "40 rows, 2 columns"),
    ]
    query, sample = query_origin("duckdb:///one.duckdb", None, shop)
    assert (query.sql, sample.num_rows) == ('select * from "s"."only"', 30)


@pytest.mark.parametrize(
    ("text", "sql", "message"),
    [
        ("sqlite:///shop.db#ORDERS", None, "got the table 'ORDERS', .* of orders, .*did you mean 'orders'"),
        ("sqlite:///shop.db#empty", None, "there are no rows"),
        ("sqlite:///shop.db#orders", "select 1", "--sql: got a query and the table 'orders'"),
        ("sqlite:///shop.db", "drop table orders", "--sql: got a statement that begins with drop"),
        ("${SHOP}", None, "names a file by a relative path: write the whole one, as sqlite:////"),
        ("postgresql://ada:hush@host/shop#orders", None, "--from: holds a password: write"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    shop: Path, monkeypatch: pytest.MonkeyPatch, text: str, sql: str | None, message: str
) -> None:
    monkeypatch.setenv("SHOP", "sqlite:///shop.db")
    with pytest.raises(UsageError, match=message) as caught:
        query_origin(text, sql, shop)
    assert "hush" not in str(caught.value)


def test_a_view_of_a_table_that_is_gone_is_told(shop: Path) -> None:
    with pytest.raises(DataError, match="there is no such table"):
        query_origin("sqlite:///shop.db#gone", None, shop)
