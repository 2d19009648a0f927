"""The delimiter of a CSV by its header, and its cells where Arrow is not at hand.

This file imports nothing but Python's own library: it runs where Loopline is not installed, too.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping

SUFFIXES = (".csv", ".tsv")
PARQUET = (".parquet", ".pq")
TEXT = (".txt", ".text")
WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
DECIMAL_COMMA = ","
"""The form of numbers such as 1.234,56, in whose whole part points may set off thousands."""
_SEPARATORS = ",;\t|"  # if several are equally frequent, the first wins
_QUOTED = re.compile(rb'"[^"]*"')


def delimiter_in(content: bytes) -> str:
    """Return the most frequent separator in the header of a CSV, which is the first line that is not blank."""
    lines = _QUOTED.sub(b"", content.removeprefix(codecs.BOM_UTF8)).lstrip(b"\r\n")
    header = re.split(rb"[\r\n]", lines, maxsplit=1)[0]
    return max(_SEPARATORS, key=lambda separator: header.count(separator.encode()))


def forms_by_column(dates: Mapping[str, str], decimal_commas: Iterable[str]) -> dict[str, str]:
    """Return how the texts of columns are written, by name: a form of `strptime`, or `DECIMAL_COMMA`."""
    return {**dates, **dict.fromkeys(decimal_commas, DECIMAL_COMMA)}


def csv_rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the cells of each line of a CSV that is not blank, as Arrow's reader cuts them."""
    return (cells for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if cells)
