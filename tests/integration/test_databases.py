"""Queries of real servers, Postgres and MariaDB: exact values, one moment, what is new, and what is wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest

from models.errors import DataError, StoreError, UsageError
from models.files import Hashes
from models.project_spec.data import SqlQuery
from models.sources import query
from models.sources.databases import database
from models.sources.databases import tables as tables_of_databases
from models.sources.databases.databases import opened
from models.sources.databases.origin import UnnamedTableError, query_origin
from models.sources.source import LastIngest, Source
from tasks.tools.queries import copied
from tests import mariadb as mariadb_server
from tests import postgres as postgres_server
from tests.certificates import certificate
from tests.running import eventually

AT = "${WAREHOUSE_URL}"
_POSTGRES = """
create type mood as enum ('glad', 'sad');
create table exact (i int, b bigint, n numeric, m numeric(38, 12), f float8, r real, u uuid, j jsonb, bytes bytea,
    flag boolean, z timestamptz, d date, nothing text, mood mood, "wei""rd name" text, span interval, ever timestamp);
insert into exact values (1, 9223372036854775807, 1.234e-12, 12345678901234567890.5, 'NaN', 1.1,
    '00000000-0000-0000-0000-0000000000ff', '{"a": 1}', '\\x00ff', true, '2026-01-01 00:00+02', '2026-01-01', null,
    'glad', 'x', '1 day', 'infinity');
insert into exact (n, flag) values (123456789012345678901234567890, false), ('NaN', null);
create table orders (id int primary key, price numeric(10, 2), updated_at timestamptz);
insert into orders select i, i, timestamptz '2026-01-01' + i * interval '1 minute'
    from generate_series(1, 100000) i;
"""
_MARIADB = (
    "create table exact (i int, b bigint, ub bigint unsigned, n decimal(65, 30), m decimal(38, 12), f double, r float, "
    "u uuid, j json, bytes blob, flag boolean, bits bit(3), z timestamp, d date, y year, nothing int, "
    "`wei``rd name` text, span time)",
    "insert into exact values (1, -9223372036854775808, 18446744073709551615, 1.234e-12, 12345678901234567890.5, "
    "1e0/3, 1.1, '00000000-0000-0000-0000-0000000000ff', '{}', x'00ff', true, b'101', '2026-01-01 00:00:00', "
    "'2026-01-01', 2026, null, 'a\"b\\n,', '12:00')",
    "create table orders (id int primary key, price decimal(10, 2), updated_at datetime)",
    "insert into orders select seq, seq, '2026-01-01' + interval seq minute from seq_1_to_100000",
)
_ORDERS = SqlQuery(sql="select * from orders", at=AT, cursor="updated_at")


@pytest.fixture(scope="module")
def postgres_address() -> Iterator[str]:
    if not postgres_server.is_installed():
        pytest.skip("needs Postgres's server programs")
    with postgres_server.postgres() as server:
        address = f"{server}/postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(_POSTGRES)
        yield address


@pytest.fixture(scope="module")
def mariadb_address() -> Iterator[str]:
    if not mariadb_server.is_installed():
        pytest.skip("needs MariaDB's server programs (apt-get install mariadb-server)")
    with mariadb_server.mariadb() as address:
        for statement in _MARIADB:
            _change_mariadb(address, statement)
        yield address


def _change_mariadb(address: str, statement: str) -> None:
    host, _, port = address.partition("@")[2].partition("/")[0].partition(":")
    with pymysql.connect(
        host=host,
        port=int(port),
        user="root",
        database="shop",
        autocommit=True,
        init_command="set time_zone = '+00:00'",
    ) as connection:
        connection.cursor().execute(statement)


@pytest.fixture
def warehouse(postgres_address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WAREHOUSE_URL", postgres_address)
    return postgres_address


@pytest.fixture
def shop(mariadb_address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WAREHOUSE_URL", mariadb_address)
    return mariadb_address


def _rows(sql: str) -> list[dict[str, Any]]:
    with opened(AT, Path(), "query") as (_, session):
        schema = session.schema(sql)
        return pa.Table.from_batches(session.batches(sql, schema), schema).to_pylist()


@pytest.mark.postgres
def test_values_of_postgres_are_exact(warehouse: str) -> None:
    first, second, third = _rows(
        'select i, b, n, m, f, r, u, j, bytes, flag, z, d, nothing, mood, "wei""rd name" from exact'
    )
    assert (first["i"], first["b"], first["n"]) == (1, 2**63 - 1, Decimal("1.234E-12"))
    assert first["m"] == Decimal("12345678901234567890.5")
    assert first["f"] != first["f"]  # NaN
    assert first["r"] == pytest.approx(1.1)
    assert (first["u"], first["j"]) == ("00000000-0000-0000-0000-0000000000ff", '{"a": 1}')
    assert (first["bytes"], first["flag"], first["z"].timestamp()) == (b"\x00\xff", True, 1767218400.0)
    assert (first["d"], first["nothing"], first["mood"], first['wei"rd name']) == (date(2026, 1, 1), None, "glad", "x")
    assert second["n"] == Decimal("123456789012345678901234567890")
    assert (third["n"], third["flag"]) == (None, None)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select span from exact", r"column 'span' is interval, .* write extract\(epoch from \"span\"\)"),
        ("select ever from exact", "column 'ever' holds infinity"),
        ("select 'Infinity'::numeric as n", "column 'n' holds infinity, which no decimal is"),
        ("select 1::money as price", "column 'price' is money"),
        ("select * from gone", "there is no such table: .* at character 15 of the query"),
        ("select id,\n gone from orders", "there is no such column: .* at character 13 of the query"),
        ("selec 1", "the query is no SQL of this database: .* at character 1 of the query"),
        ("select id, id from orders", "several columns share a name"),
        ("select 1; drop table orders", "the query is no SQL"),
        ("with x as (delete from orders returning *) select * from x", "a source is only read"),
        ("select nextval('no_such_sequence')", "there is no such table"),
    ],
)
def test_what_postgres_refuses_is_one_line(warehouse: str, sql: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        _rows(sql)
    assert "\n" not in str(caught.value)


@pytest.mark.postgres
def test_a_read_sees_one_moment_and_what_is_new_alone_is_fetched_later(warehouse: str, tmp_path: Path) -> None:
    source, hashes = Source(_ORDERS, tmp_path), Hashes(tmp_path / "hashes.json")
    parts = query.identity(source, hashes, None)
    late = "insert into orders values (%s, 1, timestamptz '2026-01-01' + %s * interval '1 minute')"
    with opened(AT, tmp_path, "query") as (_, session), psycopg.connect(warehouse, autocommit=True) as connection:
        schema = session.schema(_ORDERS.sql)
        batches = session.batches(_ORDERS.sql, schema)
        first = next(batches)
        connection.execute(late, (200_000, 1))
        assert first.num_rows + sum(batch.num_rows for batch in batches) == 100_000
        connection.execute("delete from orders where id = 200000")
    assert query.identity(source, hashes, None) == parts
    assert pq.read_metadata(copied(_ORDERS, tmp_path, "id", tmp_path)).num_rows == 100_000
    with psycopg.connect(warehouse, autocommit=True) as connection:
        connection.execute(late, (100_001, 100_001))
    arrival = query.growth(source, LastIngest("key", "digest", parts, {}), hashes, 0.0)
    assert arrival is not None
    assert (arrival.rows, arrival.text) == (1, "${WAREHOUSE_URL}: +1 rows")
    assert pq.read_metadata(copied(_ORDERS, tmp_path, "id", tmp_path)).num_rows == 100_001


@pytest.mark.postgres
def test_without_a_cursor_a_change_in_place_is_noticed(warehouse: str, tmp_path: Path) -> None:
    source = Source(SqlQuery(sql="select * from orders", at=AT), tmp_path)
    hashes = Hashes(tmp_path / "hashes.json")
    before = query.identity(source, hashes, None)
    with psycopg.connect(warehouse, autocommit=True) as connection:
        connection.execute("update orders set price = price + 1 where id = 7")
    now = query.identity(source, hashes, None)
    assert now != before
    assert [part["rows"] for part in now.values()] == [part["rows"] for part in before.values()]


@pytest.mark.postgres
def test_a_lost_connection_and_a_slow_query_are_told_and_store_nothing(
    warehouse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and query like 'COPY%'"

    def lose() -> None:
        with opened(AT, tmp_path, "query") as (_, session), psycopg.connect(warehouse, autocommit=True) as connection:
            sql = "select i, repeat('x', 1000) as x from generate_series(1, 1000000) i"
            for _ in session.batches(sql, session.schema(sql)):
                connection.execute(end)

    with pytest.raises(StoreError, match="the connection broke: nothing was stored; run again"):
        lose()
    monkeypatch.setattr(database, "READ_S", 0.2)
    with pytest.raises(StoreError, match="the query took too long"):
        _rows("select pg_sleep(20)::text as x")


@pytest.mark.postgres
def test_neither_user_nor_password_is_told(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for user, name, message in (
        ("nobody:hu%20sh", "postgres", "user or password"),
        ("loopline:hush", "gone", "database"),
    ):
        server = warehouse.partition("@")[2].partition("/")[0]
        monkeypatch.setenv("WAREHOUSE_URL", f"postgresql://{user}@{server}/{name}")
        with pytest.raises((DataError, StoreError), match=message) as caught:
            _rows("select 1 as x")
        assert "hu" not in str(caught.value).replace("authentication", "")


@pytest.mark.postgres
def test_what_is_wrong_with_tls_of_postgres_is_one_line(
    warehouse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate(tmp_path)
    verified = f"?sslmode=verify-full&sslrootcert={tmp_path}/cert.pem"
    assert "it has no TLS" in _refusal(f"{warehouse}?sslmode=require", monkeypatch)
    with psycopg.connect(warehouse, autocommit=True) as connection:
        folder = Path(str(connection.execute("show data_directory").fetchone()[0]))  # type: ignore[index]
        for name in ("cert.pem", "key.pem"):
            copy = Path(shutil.copy(tmp_path / name, folder))
            copy.chmod(0o600)
            os.chown(copy, folder.stat().st_uid, folder.stat().st_gid)
            connection.execute(f"alter system set ssl_{name[: -len('.pem')]}_file = '{name}'")
        connection.execute("alter system set ssl = on")
        connection.execute("select pg_reload_conf()")
    monkeypatch.setenv("WAREHOUSE_URL", warehouse + verified)
    assert eventually(lambda: _rows("select 1 as x") == [{"x": 1}])
    (tmp_path / "other").mkdir()
    certificate(tmp_path / "other")
    for address in (
        f"{warehouse}?sslmode=verify-full",
        f"{warehouse}?sslmode=verify-full&sslrootcert={tmp_path}/other/cert.pem",
        warehouse.replace("127.0.0.1", "localhost") + verified,
    ):
        assert "its certificate is not trusted here, or is of another host" in _refusal(address, monkeypatch)
    assert "an argument of the address is wrong" in _refusal(f"{warehouse}?sslmode=verify", monkeypatch)


def _refusal(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WAREHOUSE_URL", address)
    with pytest.raises((DataError, StoreError)) as caught:
        _rows("select 1 as x")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.postgres
def test_a_new_project_sees_the_tables_of_postgres_that_its_user_may_read(
    warehouse: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with psycopg.connect(warehouse, autocommit=True) as connection:
        connection.execute(
            'create role reader login; create schema "s ""x"""; create table "s ""x"""."Big T" as '
            "select generate_series(1, 100) as id; create table hidden (id int); "
            "create table sales as select i as id, i as x, i as y from generate_series(1, 100000) i; analyze sales; "
            'grant usage on schema "s ""x""" to reader; grant select on "s ""x"""."Big T", sales to reader'
        )
    monkeypatch.setenv("READER_URL", warehouse.replace("loopline@", "reader@"))
    with pytest.raises(UnnamedTableError) as caught:
        query_origin("${READER_URL}", None, tmp_path)
    tables = [(table.text, table.size) for table in caught.value.tables]
    assert tables == [("sales", "100,000 rows, 3 columns"), ('s "x".Big T', "100 rows, 1 column")]
    assert query_origin('${READER_URL}#s "x".Big T', None, tmp_path).sample.num_rows == 100
    with pytest.raises(UsageError, match=r"got the table 'hidden', expected one that its user may read"):
        query_origin("${READER_URL}#hidden", None, tmp_path)
    with pytest.raises(DataError, match="its user may not read that: grant select to it"):
        query_origin("${READER_URL}", "select * from hidden", tmp_path)
    monkeypatch.setattr(tables_of_databases, "CELLS", 30_000)
    sample = query_origin("${READER_URL}#public.sales", None, tmp_path).sample
    ids = sample.table.column("id").to_pylist()
    assert (sample.num_rows, sample.num_first, len(ids)) == (100_000, 2_500, len(set(ids)))
    assert len(ids) > 5_000


@pytest.mark.wide
def test_a_new_project_sees_the_tables_of_mariadb(shop: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UnnamedTableError) as caught:
        query_origin(AT, None, tmp_path)
    assert [table.text for table in caught.value.tables] == ["exact", "orders"]
    monkeypatch.setattr(tables_of_databases, "CELLS", 30_000)
    query_of_orders, sample = query_origin(f"{AT}#orders", None, tmp_path)
    ids = sample.table.column("id").to_pylist()
    assert query_of_orders.sql == "select * from `orders`"
    assert (sample.num_rows, len(ids)) == (100_000, len(set(ids)))
    assert len(ids) > 5_000


@pytest.mark.wide
def test_values_of_mariadb_are_exact(shop: str) -> None:
    (row,) = _rows("select i, b, ub, n, m, f, r, u, j, bytes, flag, bits, z, d, y, nothing, `wei``rd name` from exact")
    assert (row["i"], row["b"], row["ub"]) == (1, -(2**63), 2**64 - 1)
    assert (row["n"], row["m"]) == (Decimal("1.234E-12"), Decimal("12345678901234567890.5"))
    assert row["f"] == 1 / 3
    assert row["r"] == pytest.approx(1.1)
    assert (row["u"], row["j"]) == ("00000000-0000-0000-0000-0000000000ff", "{}")
    assert (row["bytes"], row["flag"], row["bits"]) == (b"\x00\xff", 1, 5)
    assert (row["z"].timestamp(), row["d"], row["y"]) == (1767225600.0, date(2026, 1, 1), 2026)
    assert (row["nothing"], row["wei`rd name"]) == (None, 'a"b\n,')


@pytest.mark.wide
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select span from exact", r"column 'span' is time, .* write time_to_sec\(`span`\)"),
        ("select * from gone", "there is no such table"),
        ("select gone from orders", "there is no such column"),
        ("selec 1", "the query is no SQL"),
        ("select id, id from orders", "several columns share a name"),
        ("drop table orders", "the query is no SQL"),
    ],
)
def test_what_mariadb_refuses_is_one_line(shop: str, sql: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        _rows(sql)


@pytest.mark.wide
def test_a_named_authority_is_held_to_by_mariadb(shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own,) = _rows("select @@ssl_cert as path")
    certificate(tmp_path)
    monkeypatch.setenv("WAREHOUSE_URL", f"{shop}?ssl_ca={own['path']}")
    (status,) = _rows(
        "select variable_value as x from information_schema.session_status where variable_name = 'ssl_cipher'"
    )
    assert status["x"]
    for address in (
        f"{shop}?ssl_ca={tmp_path}/cert.pem",
        f"{shop.replace('127.0.0.1', 'localhost')}?ssl_ca={own['path']}",
    ):
        assert "its certificate is not trusted here, or is of another host" in _refusal(address, monkeypatch)
    assert "an argument of the address is wrong" in _refusal(f"{shop}?ssl_ca=/none.pem", monkeypatch)


@pytest.mark.wide
def test_new_rows_of_mariadb_alone_are_fetched(shop: str, tmp_path: Path) -> None:
    source, hashes = Source(_ORDERS, tmp_path), Hashes(tmp_path / "hashes.json")
    parts = query.identity(source, hashes, None)
    assert pq.read_metadata(copied(_ORDERS, tmp_path, "id", tmp_path)).num_rows == 100_000
    whole = Source(SqlQuery(sql="select * from orders", at=AT), tmp_path)
    before = query.identity(whole, hashes, None)
    assert query.identity(whole, hashes, None) == before
    _change_mariadb(shop, "insert into orders values (100001, 1.5, '2026-01-01' + interval 100001 minute)")
    assert query.identity(whole, hashes, None) != before
    arrival = query.growth(source, LastIngest("key", "digest", parts, {}), hashes, 0.0)
    assert arrival is not None
    assert arrival.rows == 1
    assert pq.read_metadata(copied(_ORDERS, tmp_path, "id", tmp_path)).num_rows == 100_001
