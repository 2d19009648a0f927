"""The delimiter of a file: by its name, or by its header."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

SUFFIXES = (".csv", ".tsv")
_SEPARATORS = ",;\t|"  # the first of those that occur equally often
_HEADER_BYTES = 1 << 16
_QUOTED = re.compile(rb'"[^"]*"')


def suffix_of(path: Path) -> str:
    """`.csv` of `a.csv`, of `a.CSV` and of `a.csv.gz`."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def first_bytes(path: Path) -> bytes:
    """The first bytes of a file, unpacked.

    Raises:
        OSError: It cannot be read, or is packed and cut short.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(_HEADER_BYTES)
    except (EOFError, zlib.error) as error:
        raise OSError(f"{path}: {error}") from error


def delimiter_of(path: Path) -> str:
    """A tab of a .tsv file; of a .csv file what separates the names in its header, in doubt a comma.

    Raises:
        OSError: It cannot be read.
    """
    if suffix_of(path) == ".tsv":
        return "\t"
    header = _QUOTED.sub(b"", first_bytes(path)).partition(b"\n")[0]
    return max(_SEPARATORS, key=lambda separator: header.count(separator.encode()))
