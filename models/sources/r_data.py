"""Reader of R's own files, without R: `.rda` and `.rds`, and the two files (`.rdb`, `.rdx`) of a package's data.

Code in them is never run. Source: "R Internals", sections 1.8 (serialization) and 1.9 (lazy loading).
"""

from __future__ import annotations

import bz2
import lzma
import warnings
import zlib
from pathlib import Path
from typing import Any

from models.errors import DataError
from models.sources.text_files import table_of

SUFFIXES = (".rda", ".rdata", ".rds", ".rdb")
# R's filter for a lazy-load object compressed by xz.
_XZ = [{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME}]
_NOT_WHOLE = (OSError, EOFError, ValueError, KeyError, IndexError, NotImplementedError, lzma.LZMAError, zlib.error)


def read_r(path: Path) -> dict[str, Any]:
    """Return the objects of an R file by name: arrays, pandas data frames, dicts. The object of an `.rds` file is `""`.

    An `.rdb` file needs the `.rdx` file beside it, which holds the positions of its objects.

    Raises:
        DataError: The file is damaged, or in no format that R writes.
    """
    try:
        if path.suffix.lower() == ".rdb":
            return _lazy_load(path)
        objects = _parsed(path.read_bytes())
    except _NOT_WHOLE as error:
        raise DataError(
            f"{path}: cannot be read as R's data ({type(error).__name__}: {error}): it was cut short or is of another "
            "format; copy or make it again"
        ) from error
    return _named(objects) if path.suffix.lower() != ".rds" else {"": objects}


def r_table(path: Path) -> Any:
    """Return an R file as one table: its only data frame (pandas), or the lines of its text vectors (Arrow).

    Raises:
        DataError: The file is damaged, holds other objects, or several data frames.
    """
    import pandas as pd
    import pyarrow as pa

    objects = read_r(path)
    frames = [value for value in objects.values() if isinstance(value, pd.DataFrame)]
    if len(frames) == len(objects) == 1:
        return frames[0]
    if objects and all(_is_lines(value) for value in objects.values()):
        return pa.concat_tables(table_of(name, value.tolist()) for name, value in objects.items())
    listing = ", ".join(f"{name} ({type(value).__name__})" for name, value in list(objects.items())[:10])
    raise DataError(
        f"{path}: holds {listing}, expected one data frame, or text vectors alone: choose in a source function, with "
        "its argument `read_r`"
    )


def _is_lines(value: Any) -> bool:
    return getattr(value, "ndim", 0) == 1 and all(isinstance(line, str) for line in value)


def _lazy_load(path: Path) -> dict[str, Any]:
    places = _named(_named(_parsed(path.with_suffix(".rdx").read_bytes()))["variables"])
    content = path.read_bytes()
    return {name: _parsed(_unpacked(content[start : start + size])) for name, (start, size) in places.items()}


def _unpacked(part: bytes) -> bytes:
    """Decompress one object: four bytes of its length, then zlib, or `2` and bzip2, `Z` and xz, `0` and plain bytes."""
    kind = part[4:5]
    if kind == b"2":
        whole = bz2.decompress(part[5:])
    elif kind == b"Z":
        whole = lzma.decompress(part[5:], format=lzma.FORMAT_RAW, filters=_XZ)
    else:
        whole = part[5:] if kind == b"0" else zlib.decompress(part[4:])
    if len(whole) != int.from_bytes(part[:4], "big"):
        raise ValueError(f"an object of {len(whole)} bytes where {int.from_bytes(part[:4], 'big')} were announced")
    return whole


def _parsed(content: bytes) -> Any:
    import rdata

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Unknown file type: assumed RDS")  # a bare object has no file type
        return rdata.conversion.convert(rdata.parser.parse_data(content))


def _named(element: Any) -> dict[str, Any]:
    if not isinstance(element, dict):
        raise ValueError(f"got one {type(element).__name__}, expected objects with names")
    return {str(name): value for name, value in element.items()}
