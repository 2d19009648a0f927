"""A query as a source: its identity without a row, what grew, and where a cursor begins again."""

import math
import sqlite3
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest

from models.errors import DataError, UsageError
from models.files import Hashes
from models.project_spec.data import SqlQuery
from models.sources import query
from models.sources.schemes import scheme_of
from models.sources.source import LastIngest, Source


@pytest.fixture
def orders(tmp_path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("create table orders (id integer, updated_at text)")
    database.executemany("insert into orders values (?, ?)", [(i, f"2026-01-01 0{i}:00:00") for i in range(5)])
    database.commit()
    return database


def source(folder: Path, cursor: str | None = "updated_at") -> Source:
    return Source(SqlQuery(sql="select * from orders", at="sqlite:///shop.db", cursor=cursor), folder)


def test_with_a_cursor_its_end_and_the_rows_near_it_are_asked(tmp_path: Path, orders: sqlite3.Connection) -> None:
    hashes, shop = Hashes(tmp_path / "hashes.json"), source(tmp_path)
    parts = scheme_of(shop.named).identity(shop, hashes, None)
    assert parts == {"query:sqlite:///shop.db": {"highest": "'2026-01-01 04:00:00'", "rows": 2}}
    before = LastIngest("key", "digest", parts, {})
    assert query.growth(shop, before, hashes, 0.0) is None
    orders.executemany("insert into orders values (?, ?)", [(7, "2026-01-01 05:00:00"), (8, "2026-01-01 05:30:00")])
    orders.commit()
    arrival = query.growth(shop, before, hashes, 0.0)
    assert arrival is not None
    assert (arrival.rows, arrival.text) == (2, "sqlite:///shop.db: +2 rows")
    assert query.identity(shop, hashes, parts) == parts  # pages ask no database


def test_without_a_cursor_a_file_is_known_by_its_content(tmp_path: Path, orders: sqlite3.Connection) -> None:
    hashes, shop = Hashes(tmp_path / "hashes.json"), source(tmp_path, None)
    before = LastIngest("key", "digest", query.identity(shop, hashes, None), {})
    assert query.growth(shop, before, hashes, 0.0) is None
    orders.execute("delete from orders where id = 3")
    orders.commit()
    arrival = query.growth(shop, before, Hashes(tmp_path / "other.json"), 0.0)
    assert arrival is not None
    assert arrival.text == "sqlite:///shop.db: its rows have changed"


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(("then", "now"), [(None, "updated_at"), ("updated_at", None)])
def test_a_cursor_that_came_or_went_since_the_last_ingest_is_a_change(
    tmp_path: Path, then: str | None, now: str | None
) -> None:
    hashes = Hashes(tmp_path / "hashes.json")
    before = LastIngest("key", "digest", query.identity(source(tmp_path, then), hashes, None), {})
    arrival = query.growth(source(tmp_path, now), before, hashes, 0.0)
    assert arrival is not None
    assert arrival.rows is None


def test_a_cursor_that_is_no_column_is_refused_before_a_run(tmp_path: Path, orders: sqlite3.Connection) -> None:
    del orders
    query.check(source(tmp_path), is_text=False)
    with pytest.raises(UsageError, match=r"data\.source\.cursor: got 'changed', expected a column of the query: id"):
        query.check(source(tmp_path, "changed"), is_text=False)


@pytest.mark.parametrize(
    ("value", "low"),
    [
        (10_000, 6400),
        (Decimal(10_000), Decimal(6400)),
        (datetime(2026, 1, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=UTC)),
        (date(2026, 1, 2), date(2026, 1, 1)),
        ("2026-01-02", "2026-01-01"),
        ("2026-01-01 02:00:00", "2026-01-01 01:00:00"),
        ("2026-01-01T02:00:00.250Z", "2026-01-01T01:00:00"),
    ],
)
def test_rows_are_read_again_from_an_hour_or_so_many_numbers_before(value: object, low: object) -> None:
    assert query.behind(value, 3600, "updated_at") == low


@pytest.mark.parametrize("value", ["soon", "20260131", "20260131T1200", b"2026", ["2026"], time(10), True, math.nan])
def test_a_cursor_that_is_no_time_or_number_is_refused(value: object) -> None:
    with pytest.raises(DataError, match="expected a time or date such as 2026-05-31, or a number: cast it"):
        query.behind(value, 3600, "updated_at")


def test_values_are_written_as_sql_writes_them() -> None:
    assert query.literal(5) == "5"
    assert query.literal(Decimal("1.50")) == "1.50"
    assert query.literal(date(2026, 1, 2)) == "'2026-01-02'"
    assert query.literal("o'clock") == "'o''clock'"
    assert query.literal(datetime(2026, 1, 1, 2, tzinfo=UTC)) == "'2026-01-01 02:00:00+00:00'"
