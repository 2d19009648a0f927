"""Names of columns, read without the rows."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import DataError
from models.sources.header import header_of
from models.sources.row_batches import first_values


def test_names_are_read_as_the_table_will_have_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('\ufeff"x, y";z\n1;2\n')
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write("x\ty\n1\t2\n")
    assert header_of(tmp_path / "a.csv") == ["x, y", "z"]
    assert header_of(tmp_path / "b.csv.gz") == ["x", "y"]
    (tmp_path / "c.csv").write_text('\n\n"x\n(EUR)",y\x0b\x85\n1,2\n')
    assert header_of(tmp_path / "c.csv") == ["x\n(EUR)", "y\x0b\x85"]
    assert header_of(tmp_path / "c.rda") is None
    (tmp_path / "empty.csv").write_text("x\n")
    assert header_of(tmp_path / "empty.csv") is None  # no rows: ingest says so
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    assert header_of(tmp_path / "cut.parquet") is None


def test_a_file_that_is_cut_short_cannot_be_read(tmp_path: Path) -> None:
    packed = gzip.compress(b"x,y\n" * 9)
    (tmp_path / "cut.csv.gz").write_bytes(packed[: len(packed) - 9])
    with pytest.raises(DataError, match=r"cut\.csv\.gz"):
        header_of(tmp_path / "cut.csv.gz")


def test_a_parquet_file_with_a_name_that_is_not_utf8_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"town": ["x"]}), path)
    path.write_bytes(path.read_bytes().replace(b"town", b"t\xffwn"))
    assert header_of(path) is None
    assert first_values(path, "town") is None
