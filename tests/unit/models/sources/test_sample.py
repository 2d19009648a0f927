"""A sample has rows from all over a large table, is the same again, and says what it is a sample of."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from models.errors import DataError
from models.sources import sample
from models.sources.sample import sample_of

ROWS = pa.table({"x": np.arange(40_000), "y": np.arange(40_000) % 7})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "CELLS", 8_000)
    monkeypatch.setattr(sample, "HEAD_BYTES", 50_000)
    monkeypatch.setattr(sample, "CHUNK_BYTES", 1_000)


def xs(path: Path) -> list[int]:
    """Return the values of x in a sample, which is the same again."""
    drawn = sample_of(path)
    assert sample_of(path).table.equals(drawn.table)
    values: list[int] = drawn.table.column("x").to_pylist()
    assert values[: drawn.num_first] == [*range(drawn.num_first)]
    assert sorted(values) == values
    assert len({*values}) == len(values)
    return values


def test_parquet_is_sampled_by_row_groups(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet", row_group_size=1_000)
    values = xs(tmp_path / "a.parquet")
    assert (sample_of(tmp_path / "a.parquet").num_rows, len(values) <= 4_000) == (40_000, True)
    assert values[-1] > 30_000


def test_lines_are_sampled_by_parts(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(ROWS, tmp_path / "a.csv")
    drawn, values = sample_of(tmp_path / "a.csv"), xs(tmp_path / "a.csv")
    assert drawn.num_rows is not None
    assert abs(drawn.num_rows - 40_000) < 8_000  # an estimate: the numbers grow longer
    assert (len(values) < 12_000, values[-1] > 30_000, drawn.is_whole) == (True, True, False)


def test_a_compressed_file_gives_its_first_rows(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(ROWS, tmp_path / "a.csv")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    drawn = sample_of(tmp_path / "a.csv.gz")
    assert (drawn.num_rows, drawn.num_first) == (None, drawn.table.num_rows)


def test_a_folder_is_sampled_by_files_with_their_partitions(tmp_path: Path) -> None:
    for part in range(20):
        (tmp_path / f"part={part}").mkdir()
        pq.write_table(ROWS.slice(part * 2_000, 2_000), tmp_path / f"part={part}" / "a.parquet")
    drawn = sample_of(tmp_path)
    assert (drawn.num_rows, drawn.table.schema.field("part").type) == (40_000, pa.int64())
    assert len(drawn.table.column("part").unique()) > 10


def test_what_is_small_is_read_whole(tmp_path: Path) -> None:
    pq.write_table(ROWS.slice(0, 100), tmp_path / "a.parquet")
    assert sample_of(tmp_path / "a.parquet").is_whole


@pytest.mark.parametrize(
    ("first", "line", "number"), [("", "x,", 1), ("x,y\n1,2\n3,4\n", "5,", 4), ('x,y\n1,"2\n', "3,4\n", 2)]
)
def test_one_endless_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, line: str, number: int
) -> None:
    monkeypatch.setattr(sample, "LINE_BYTES", 20_000)
    (tmp_path / "a.csv").write_text(first + line * 100_000)
    with pytest.raises(
        DataError, match=rf"line {number} does not end within [0-9,]+ bytes: is it a table, or is a quote"
    ):
        sample_of(tmp_path / "a.csv")


def test_values_of_several_lines_are_not_cut(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,note\n" + "".join(f'{row},"one\ntwo, three"\n' for row in range(9_000)))
    assert sample_of(tmp_path / "a.csv").table.column("note").unique().to_pylist() == ["one\ntwo, three"]


@pytest.mark.parametrize("head_bytes", [1 << 25, 1 << 12])
def test_codes_keep_their_zeros_in_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head_bytes: int) -> None:
    monkeypatch.setattr(sample, "HEAD_BYTES", head_bytes)
    monkeypatch.setattr(sample, "CHUNK_BYTES", 512)
    rows = "".join(f"{1067 if row % 3 else 80331:05d},{row % 12 + 1:02d},{row}\n" for row in range(3000))
    (tmp_path / "a.csv").write_text(f"place,month,x\n{rows}")
    codes = sample_of(tmp_path / "a.csv")
    assert codes.written == (["place"], [])
    assert {*codes.table.column("place").to_pylist()} == {"01067", "80331"}
    assert pa.types.is_integer(codes.table.schema.field("month").type)
