"""Compressed text has the rows of plain text, however it is read; an archive is one table, or names several."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from models.errors import DataError
from models.sources.header import header_of
from models.sources.packed import split_part, suffix_of
from models.sources.read import read_source
from models.sources.row_batches import column_names, count_rows, row_batches

CSV, LINES, ARRAY = (
    b"x;y\n1;yes\n2;no\n",
    b'{"x":1,"y":"yes"}\n{"x":2,"y":"no"}\n',
    b'[{"x":1,"y":"yes"},{"x":2,"y":"no"}]',
)
ROWS = [{"x": 1, "y": "yes"}, {"x": 2, "y": "no"}]


def zstd(content: bytes) -> bytes:
    """Return a frame of Zstandard."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}


def archive(path: Path, **members: bytes) -> Path:
    """Write a zip; `__` in a name stands for its dot."""
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name.replace("__", "."), content)
    return path


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize(("suffix", "content"), [("csv", CSV), ("jsonl", LINES), ("json", ARRAY)])
def test_compressed_text_is_its_rows(packer: str, suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}.{packer}"
    path.write_bytes(PACKERS[packer](content))
    assert read_source(path).to_pylist() == ROWS
    assert (column_names(path), count_rows(path)) == (["x", "y"], 2)
    (batch,) = row_batches([path], {"x": pa.int64()}, 10)
    assert batch.to_pylist() == ROWS
    path.write_bytes(PACKERS[packer](content * 9999)[:-9])
    with pytest.raises(DataError, match=r"cannot be unpacked .*: it was cut short .*; copy it again"):
        read_source(path)


@pytest.mark.parametrize("packer", PACKERS)
def test_lines_of_text_are_unpacked(packer: str, tmp_path: Path) -> None:
    (tmp_path / f"a.txt.{packer}").write_bytes(PACKERS[packer](b"one\ntwo\n"))
    assert read_source(tmp_path / f"a.txt.{packer}").column("text").to_pylist() == ["one", "two"]
    (tmp_path / f"a.txt.{packer}").write_bytes(b"plain")
    with pytest.raises(DataError, match=r"cannot be unpacked .*or is of another format"):
        read_source(tmp_path / f"a.txt.{packer}")


def test_an_archive_of_one_table_is_its_rows(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.ZIP", rows__csv=CSV, README__txt=b"about", _hidden__csv=b"z\n")
    assert (suffix_of(path), header_of(path)) == (".csv", ["x", "y"])
    assert read_source(path).to_pylist() == ROWS
    assert [batch.to_pylist() for batch in row_batches([path], {"x": pa.int64()}, 10)] == [ROWS]
    assert read_source(archive(tmp_path / "b.zip", rows__jsonl=LINES)).to_pylist() == ROWS


def test_an_archive_of_several_tables_names_them(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", one__csv=CSV, two__csv=b"z\n5\n")
    with pytest.raises(DataError, match=r"holds several tables, 'one\.csv', 'two\.csv': name one, a\.zip#one\.csv"):
        read_source(path)
    assert read_source(tmp_path / "a.zip#two.csv").to_pylist() == [{"z": 5}]
    with pytest.raises(DataError, match=r"holds no 'three\.csv', only 'one\.csv', 'two\.csv'"):
        read_source(tmp_path / "a.zip#three.csv")
    with pytest.raises(DataError, match=r"holds 'a\.parquet', expected one file of CSV, JSON or text: unpack it"):
        read_source(archive(tmp_path / "b.zip", a__parquet=b"PAR1"))
    (tmp_path / "c.zip").write_bytes(path.read_bytes()[:40])
    with pytest.raises(DataError, match=r"c\.zip: not readable as a zip .*copy or make it again"):
        read_source(tmp_path / "c.zip")


def test_only_files_of_several_tables_have_parts() -> None:
    assert split_part(Path("in/a.xlsx#May #2")) == (Path("in/a.xlsx"), "May #2")
    assert split_part(Path("no#1.csv")) == (Path("no#1.csv"), "")
