"""Rows of DuckDB: exact values; a query reads its own database and nothing else of the machine."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from models.errors import DataError
from tests.unit.models.sources.databases.test_sqlite import rows

ADDRESS = "duckdb:///shop.duckdb"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("duckdb")
    with duckdb.connect(folder / "shop.duckdb") as database:
        database.execute(
            "create table t as select 1.234e-12::decimal(38, 15) n, 18446744073709551615::ubigint u, "
            "'a'::enum('a', 'b') e, timestamptz '2026-01-02 03:00:00+01' z, 'x'::blob b, null nothing, "
            "interval 1 day i, 'infinity'::date d"
        )
    return folder


def test_values_are_exact(folder: Path) -> None:
    (row,) = rows(folder, "select * exclude (i, d) from t", ADDRESS)
    moment = row.pop("z")
    assert moment.astimezone(UTC) == datetime(2026, 1, 2, 2, tzinfo=UTC)
    assert row == {"n": Decimal("1.234E-12"), "u": 2**64 - 1, "e": "a", "b": b"x", "nothing": None}


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select i from t", r"column 'i' is INTERVAL, .* write epoch\(\"i\"\) as i in the query"),
        ("select d from t", "column 'd' holds infinity"),
        ("select n, n from t", "several columns share a name"),
        ("select 1 as a; select 2 as b", "several statements"),
        ("insert into t (u) values (1)", "a source is only read"),
        ("select * from read_csv('/etc/passwd')", "a query reads its own database alone"),
        ("select * from gone", "there is no such table"),
        ("selec 1", "the query is no SQL"),
    ],
)
def test_what_is_wrong_is_one_line(folder: Path, sql: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rows(folder, sql, ADDRESS)
