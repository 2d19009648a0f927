"""Delta tables: only the files of the newest version count, and what plain files would get wrong is refused."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from models.errors import DataError
from models.sources.folders import data_files
from models.sources.read import read_source
from models.sources.row_batches import row_batches


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a table of three versions, of which the last overwrote a day."""
    place = tmp_path / "trips"
    day, later = pa.array([date(2026, 5, 1)] * 2), pa.array([date(2026, 5, 2)])
    write_deltalake(place, pa.table({"x": [1, 2], "day": day}), partition_by=["day"])
    write_deltalake(place, pa.table({"x": [3], "day": later}), mode="append")
    write_deltalake(place, pa.table({"x": [4], "day": later}), mode="overwrite", predicate="day = '2026-05-02'")
    return place


def test_the_newest_version_counts_with_the_types_of_its_schema(table: Path) -> None:
    rows = sorted(read_source(table).to_pylist(), key=lambda row: row["x"])
    assert [(row["x"], row["day"].day) for row in rows] == [(1, 1), (2, 1), (4, 2)]
    assert isinstance(rows[0]["day"], date)
    batches = row_batches(data_files(table), {}, 10, table)
    assert sorted(x for batch in batches for x in batch.column("x").to_pylist()) == [1, 2, 4]
    assert len([*table.rglob("*.parquet")]) == 3


def test_a_feature_that_files_do_not_show_is_refused(table: Path) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    last = DeltaTable(table).version() + 1
    (table / "_delta_log" / f"{last:020}.json").write_text(
        json.dumps({"protocol": {**protocol, "writerFeatures": ["deletionVectors"]}})
    )
    with pytest.raises(DataError, match=r"not readable as a Delta table .*deletionVectors.*write it again without"):
        read_source(table)


def test_a_lost_file_is_named(table: Path) -> None:
    gone = data_files(table)[0]
    gone.unlink()
    with pytest.raises(DataError, match=r"not readable as a Delta table .*: copy the whole table with its log"):
        read_source(table)


def test_an_iceberg_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_text("{}")
    with pytest.raises(DataError, match="is an Iceberg table, which is not read: write its rows as Parquet"):
        read_source(tmp_path)
