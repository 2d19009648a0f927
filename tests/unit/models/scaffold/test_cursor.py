"""A first spec of a query names its cursor where a column clearly is one, and says why not where none is."""

from datetime import datetime, timedelta

import pyarrow as pa
import pytest
import yaml

from models.project_spec.data import SqlQuery
from models.scaffold.cursor import cursor_of, query_lines
from models.scaffold.table import guess_spec
from models.sources.sample import whole

NUM_ROWS = 60
TIMES = pa.array([datetime(2026, 1, 1) + timedelta(hours=n * 7 % NUM_ROWS) for n in range(NUM_ROWS)])
IDS = pa.array(range(NUM_ROWS))


@pytest.mark.parametrize(
    ("columns", "id_column", "cursor", "is_change"),
    [
        ({"id": IDS, "updated_at": TIMES}, "id", "updated_at", True),
        ({"id": IDS, "createdAt": TIMES, "lastModified": TIMES}, "id", "lastModified", True),
        ({"id": IDS, "Row Updated": TIMES.cast(pa.string())}, "id", "Row Updated", True),
        ({"id": IDS, "updated_at": pa.array(["in May"] * NUM_ROWS)}, "id", "id", False),
        ({"id": IDS, "updated_at": pa.array([None, *TIMES.to_pylist()[1:]])}, "id", "id", False),
        ({"id": IDS, "created_at": TIMES}, "id", "created_at", False),
        ({"id": IDS, "departed_at": TIMES}, "id", "id", False),
        ({"id": IDS.take(pa.array(range(NUM_ROWS - 1, -1, -1))), "departed_at": TIMES}, "id", None, False),
        ({"updated_at": TIMES}, None, None, False),
    ],
)
def test_the_cursor_is_a_time_of_changes_else_of_arrivals_else_an_id_that_grows(
    columns: dict[str, pa.Array], id_column: str | None, cursor: str | None, is_change: bool
) -> None:
    guess = cursor_of(pa.table(columns), id_column)
    assert (guess.column, guess.is_change) == (cursor, is_change)


@pytest.mark.parametrize(
    "sql",
    ['select * from "Big ""T"" #1"', "select id,\n  price -- in euro: all\nfrom orders", "select '\t\u200b' as x"],
)
def test_a_query_reads_back_from_its_lines(sql: str) -> None:
    query = SqlQuery(sql=sql, at="${URL}")
    lines = query_lines(query, cursor_of(pa.table({"id": IDS}), "id"))
    assert yaml.safe_load("\n".join(lines)) == {"source": {"sql": sql, "at": "${URL}", "cursor": "id"}}


def test_the_time_of_changes_is_no_input_and_splits_no_rows() -> None:
    table = pa.table({"id": IDS, "size": pa.array([n * 3 % 7 for n in range(NUM_ROWS)]), "updated_at": TIMES})
    table = table.append_column("left", pa.array([n % 3 == 0 for n in range(NUM_ROWS)]))
    query = SqlQuery(sql="select * from orders", at="${URL}")
    data = yaml.safe_load(guess_spec(whole(table), "orders", "left", query))["data"]
    assert data["source"] == {"sql": query.sql, "at": query.at, "cursor": "updated_at"}
    assert data["features"] == {"drop": ["id", "updated_at"]}
    assert data["split"] == {"by": "stratified"}
