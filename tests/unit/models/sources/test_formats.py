"""Rows of JSON and Arrow files, alone and in folders; a file that is none is named with its cure."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pytest

from models.errors import DataError
from models.sources.read import read_source
from models.sources.row_batches import column_names, count_rows, row_batches

ROWS = [{"x": 1, "y": "yes"}, {"x": 2, "y": "no"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def write(path: Path) -> Path:
    """Write the rows in the format of a name."""
    table = pa.table({"x": [1, 2], "y": ["yes", "no"]})
    match path.name.partition(".")[2]:
        case "jsonl" | "ndjson":
            path.write_bytes(LINES)
        case "jsonl.gz":
            path.write_bytes(gzip.compress(LINES))
        case "json":
            path.write_text(json.dumps(ROWS))
        case "json.gz":
            path.write_bytes(gzip.compress(json.dumps(ROWS).encode()))
        case "feather":
            pyarrow.feather.write_feather(table, path)
        case "arrow":
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table)
    return path


@pytest.mark.parametrize("suffix", ["jsonl", "ndjson", "jsonl.gz", "json", "json.gz", "feather", "arrow"])
def test_a_file_is_its_rows(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a.{suffix}")
    assert read_source(path).to_pylist() == ROWS
    assert (column_names(path), count_rows(path)) == (["x", "y"], 2)
    assert [table.to_pylist() for table in row_batches([path], {}, 1)] == [[row] for row in ROWS]


@pytest.mark.parametrize("suffix", ["jsonl", "feather"])
def test_a_folder_of_files_is_one_table_with_its_partitions(suffix: str, tmp_path: Path) -> None:
    for city in ("Bern", "Oslo"):
        (tmp_path / f"city={city}").mkdir()
        write(tmp_path / f"city={city}" / f"a.{suffix}")
    (tmp_path / "about.json").write_text("{}")
    assert read_source(tmp_path).to_pylist() == [{**row, "city": city} for city in ("Bern", "Oslo") for row in ROWS]


def test_an_object_may_be_long_and_lack_fields(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"x": "long" * 500_000}) + '\n{"y": 1.5}\n')
    table = read_source(tmp_path / "a.jsonl")
    assert (table.column("y").to_pylist(), len(table.column("x")[0].as_py())) == ([None, 1.5], 2_000_000)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", '{"x": 1}\n{"x": \n', "not readable as JSON lines .*: write one object a line"),
        ("a.jsonl", '{"x": 1}\n{"x": "a"}\n', "each field with one type"),
        ("a.json", '{"x": 1}', r"got dict\): write \[{...}, {...}\]"),
        ("a.json", '[{"x": 1}, {"x": "a"}]', "each field with one type"),
        ("a.json.gz", "plain", "cannot be unpacked .*: it was cut short or is of another format"),
        ("a.feather", "FEA1", "not readable as a Feather or Arrow file"),
    ],
)
def test_a_broken_file_is_named_with_the_cure(name: str, content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=words) as refused:
        read_source(tmp_path / name)
    assert str(refused.value).startswith(str(tmp_path / name))
