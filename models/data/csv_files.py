"""What separates the values of a file: what its name says, or what its header shows."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

SUFFIXES = (".csv", ".tsv")
_SEPARATORS = ",;\t|"  # the first of those that occur equally often
_HEADER_BYTES = 1 << 16
_QUOTED = re.compile(rb'"[^"]*"')


def suffix_of(path: Path) -> str:
    """`.csv` of `a.csv`, of `a.CSV` and of `a.csv.gz`."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def delimiter_of(path: Path) -> str:
    """A tab of a .tsv file; of a .csv file what separates the names in its header, in doubt a comma.

    Raises:
        OSError: It cannot be read.
    """
    if suffix_of(path) == ".tsv":
        return "\t"
    with pa.input_stream(str(path), compression="detect") as stream:
        header = _QUOTED.sub(b"", stream.read(_HEADER_BYTES)).partition(b"\n")[0]
    return max(_SEPARATORS, key=lambda separator: header.count(separator.encode()))
