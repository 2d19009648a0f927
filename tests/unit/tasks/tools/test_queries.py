"""Copies of queries: whole, of what is new, and whole again where rows went away."""

import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from models.errors import DataError
from models.project_spec.data import SqlQuery
from tasks.tools import queries
from tasks.tools.queries import copied


@pytest.fixture
def orders(tmp_path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("create table orders (id integer, price real, updated_at text)")
    rows = [(number, float(number), f"2026-01-{1 + number:02} 00:00:00") for number in range(20)]
    database.executemany("insert into orders values (?, ?, ?)", rows)
    database.commit()
    return database


def _prices(folder: Path, cursor: str | None = "updated_at") -> dict[int, float]:
    query = SqlQuery(sql="select * from orders", at="sqlite:///shop.db", cursor=cursor)
    table = pq.read_table(copied(query, folder, "id", folder / "cache"))
    assert table.column("id").to_pylist() == [*dict.fromkeys(table.column("id").to_pylist())]
    return dict(zip(table.column("id").to_pylist(), table.column("price").to_pylist(), strict=True))


def test_new_and_changed_rows_alone_are_fetched(
    tmp_path: Path, orders: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(_prices(tmp_path)) == 20
    orders.execute("update orders set price = -1, updated_at = '2026-01-20 00:10:00' where id = 3")
    orders.execute("insert into orders values (50, 50, '2026-01-20 00:20:00')")
    orders.execute("insert into orders values (51, 51, '2026-01-19 23:30:00')")  # was committed late
    orders.commit()
    fetched = []
    merged = queries._merged
    monkeypatch.setattr(
        queries, "_merged", lambda path, table, *rest: fetched.append(table) or merged(path, table, *rest)
    )
    prices = _prices(tmp_path)
    assert (len(prices), prices[3], prices[50], prices[51]) == (22, -1.0, 50.0, 51.0)
    assert sorted(fetched[0].column("id").to_pylist()) == [3, 19, 50, 51]


def test_rows_that_went_away_are_noticed_with_the_next_new_one(tmp_path: Path, orders: sqlite3.Connection) -> None:
    _prices(tmp_path)
    orders.execute("delete from orders where id < 5")
    orders.execute("insert into orders values (50, 50, '2026-02-01 00:00:00')")
    orders.commit()
    assert sorted(_prices(tmp_path)) == [*range(5, 20), 50]


def test_a_changed_type_reads_all_rows_again(tmp_path: Path, orders: sqlite3.Connection) -> None:
    _prices(tmp_path)
    orders.execute("update orders set price = 'cheap', updated_at = '2026-02-01' where id = 0")
    orders.execute("update orders set price = 'dear' where id > 0")
    orders.commit()
    assert _prices(tmp_path)[1] == "dear"


def test_a_query_without_rows_leaves_the_copy(tmp_path: Path, orders: sqlite3.Connection) -> None:
    _prices(tmp_path, None)
    orders.execute("delete from orders")
    orders.commit()
    with pytest.raises(DataError, match="the query returns no rows, expected at least ten"):
        _prices(tmp_path, None)
    (copy,) = (tmp_path / "cache" / "queries").glob("*.parquet")
    assert pq.read_metadata(copy).num_rows == 20


def test_equal_queries_of_two_files_have_two_copies(tmp_path: Path, orders: sqlite3.Connection) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with sqlite3.connect(other / "shop.db") as database:
        orders.backup(database)
        database.execute("update orders set price = -1")
    query = SqlQuery(sql="select * from orders", at="sqlite:///shop.db", cursor="updated_at")
    prices = [pq.read_table(copied(query, folder, "id", tmp_path)).column("price") for folder in (tmp_path, other)]
    assert prices[0][5].as_py() == 5
    assert set(prices[1].to_pylist()) == {-1}


def test_copies_of_a_server_differ_by_user_and_arguments_and_not_by_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def name(url: str) -> str:
        monkeypatch.setenv("SHOP_URL", url)
        return queries._name(SqlQuery(sql="select 1", at="${SHOP_URL}"), tmp_path, "id")

    first = name("postgresql://ada:old@host/shop?options=-csearch_path%3Da&password=old")
    assert first == name("postgresql://ada:new@host/shop?options=-csearch_path%3Da&password=new")
    assert first != name("postgresql://bob:old@host/shop?options=-csearch_path%3Da&password=old")
    assert first != name("postgresql://ada:old@host/shop?options=-csearch_path%3Db&password=old")
