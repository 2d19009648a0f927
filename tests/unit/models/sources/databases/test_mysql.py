"""What of MySQL is known without a server: its quotes, and lines of CSV that become rows."""

import pyarrow as pa
import pytest

from models.errors import DataError
from models.sources.databases.mysql import digest, quoted, rows_of_lines


def test_names_are_quoted_with_backticks() -> None:
    assert quoted("a`b") == "`a``b`"
    assert "quote(`a`), quote(`b`)" in digest(["a", "b"])


def test_lines_become_rows_and_empty_is_missing_where_it_has_no_quotes() -> None:
    schema = pa.schema({"text": pa.string(), "bytes": pa.binary(), "single": pa.float32(), "n": pa.decimal256(66, 30)})
    lines = b'"a ""b""\n,c","00FF",1.100000023841858,1.5\n"","",,\n,,,\n'
    rows = pa.Table.from_batches(rows_of_lines(lines, schema)).to_pylist()
    assert [row["text"] for row in rows] == ['a "b"\n,c', "", None]
    assert [row["bytes"] for row in rows] == [b"\x00\xff", b"", None]
    assert rows[0]["single"] == pytest.approx(1.1)
    assert str(rows[0]["n"]).startswith("1.5")


def test_a_column_of_nothing_alone_keeps_its_rows() -> None:
    schema = pa.schema({"x": pa.int64()})
    assert pa.Table.from_batches(rows_of_lines(b"\n\n", schema)).num_rows == 2


def test_a_date_that_is_none_names_its_column() -> None:
    with pytest.raises(DataError, match=r"column 'day' holds '0000-00-00', which is no date32\[day\]"):
        list(rows_of_lines(b"0000-00-00\n", pa.schema({"day": pa.date32()})))
