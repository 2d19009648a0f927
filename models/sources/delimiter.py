"""The kind of a file by its name, the delimiter of a CSV by name or header, and its cells where Arrow is not at hand.

This file imports nothing but Python's own library: it runs where Loopline is not installed, too.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = (".csv", ".tsv")
PARQUET = (".parquet", ".pq")
TEXT = (".txt", ".text")
_SEPARATORS = ",;\t|"  # if several are equally frequent, the first wins
_HEADER_BYTES = 1 << 16
_QUOTED = re.compile(rb'"[^"]*"')


def suffix_of(path: Path) -> str:
    """Return `.csv` for `a.csv`, `a.CSV` and `a.csv.gz`."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed.

    Raises:
        OSError: The file cannot be read, or is compressed and cut short.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(_HEADER_BYTES)
    except (EOFError, zlib.error) as error:
        raise OSError(f"{path}: {error}") from error


def delimiter_of(path: Path) -> str:
    """Return a tab for a .tsv file, for a .csv file the separator in its header; in doubt a comma.

    Raises:
        OSError: The file cannot be read.
    """
    if suffix_of(path) == ".tsv":
        return "\t"
    return delimiter_in(first_bytes(path))


def delimiter_in(content: bytes) -> str:
    """Return the most frequent separator in the header of a CSV, which is the first line that is not blank."""
    lines = _QUOTED.sub(b"", content.removeprefix(codecs.BOM_UTF8)).lstrip(b"\r\n")
    header = re.split(rb"[\r\n]", lines, maxsplit=1)[0]
    return max(_SEPARATORS, key=lambda separator: header.count(separator.encode()))


def csv_rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the cells of each line of a CSV that is not blank, as Arrow's reader cuts them."""
    return (cells for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if cells)
