"""Columns of pictures of any size, as files, paths of files or arrays: as plain bytes of one shape."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from models.errors import DataError, first_of
from models.inputs.image.pictures import levels_of, shape_of
from models.inputs.types import is_text
from models.project_spec import own_reads
from models.project_spec.blocks import Image
from models.scratch import mapped

MAPPED_ROWS = 1024
"""A table of more pictures lies in a file."""


def with_pixels(
    rows: pa.Table, image: Image, base: Path, first_row: int = 1, *, hashed: Path | None = None
) -> pa.Table:
    """Return rows with each picture as height x width x channels bytes; unchanged if `data.image.resize` is not set.

    What `levels_of` takes is one: the bytes of a file, the path of a file as text, plain bytes of the shape.

    Args:
        rows: The rows; those without the column stay as they are, for the check of columns.
        image: The column and its shape.
        base: The folder to which paths are relative.
        first_row: The number of the first row, for messages.
        hashed: A folder whose content the key of a step holds: its files need not be noted as read.

    Raises:
        DataError: Pictures cannot be read, or are texts although `data.image.resize` is not set; names the first row.

    Cost: 2 ms for a JPEG of 640 x 480, 21 ms for one of 12 million pixels.
    """
    if image.column not in rows.column_names:
        return rows
    if image.resize is None:
        if is_text(rows.schema.field(image.column).type):
            raise DataError(
                f"data.image.column {image.column!r} holds paths of pictures, such as "
                f"{rows.column(image.column).drop_null().slice(0, 1).to_pylist()}, which need a shape: say "
                "data.image.resize: crop, pad or stretch"
            )
        return rows
    values = (value.as_py() for value in rows.column(image.column))
    column = _pixels(_levels(values, image, base, first_row, hashed), rows.num_rows)
    return rows.set_column(rows.column_names.index(image.column), image.column, column)


def _pixels(levels: Iterator[bytes], num_rows: int) -> pa.ChunkedArray:
    """Return pictures as a column; many are in a mapped file without a name: memory does not grow with them."""
    if num_rows <= MAPPED_ROWS:
        return pa.chunked_array([pa.array(levels, pa.binary())])
    schema = pa.schema([pa.field("pixels", pa.binary())])
    parts = iter(lambda: [*itertools.islice(levels, MAPPED_ROWS)], [])
    batches = (pa.record_batch([pa.array(part, pa.binary())], schema=schema) for part in parts)
    return mapped(batches, schema, Path(tempfile.gettempdir())).column(0)


def with_plain_bytes(rows: Any, image: Image, base: Path) -> Any:
    """Return a data frame with its column of arrays as plain bytes, since Arrow has no arrays of several sizes.

    Anything else that a source returns stays as it is.

    Raises:
        DataError: Pictures cannot be read; names the first row.
    """
    if image.resize is None or not hasattr(rows, "iloc") or image.column not in rows:
        return rows
    return rows.assign(**{image.column: list(_levels(rows[image.column], image, base, 1, None))})


def _levels(values: Iterable[Any], image: Image, base: Path, first_row: int, hashed: Path | None) -> Iterator[bytes]:
    shape, reads = shape_of(image.model_dump()), own_reads.Reads()
    broken: list[str] = []
    cause: Exception | None = None
    for row, value in enumerate(values, first_row):
        try:
            yield levels_of(_content(value, base, reads, hashed), shape).tobytes()
        except (ValueError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else f"got {error}"
            place = f"row {row}" + (f" ({value})" if isinstance(value, str) else "")
            broken.append(f"{place}: {reason}" if not broken else place)
            cause = cause or error
            yield b""  # to the end, so that a person hears of all of them
    if broken:
        more = f"; so are {len(broken) - 1:,} others, {first_of(broken[1:], 3, ', ')}" if len(broken) > 1 else ""
        cure = "give what is expected, or leave the row out"
        raise DataError(f"data.image.column {image.column!r} cannot be read, {broken[0]}{more}: {cure}") from cause
    own_reads.credit(reads)  # the pictures that a source names by their paths are its content


def _content(value: Any, base: Path, reads: own_reads.Reads, hashed: Path | None) -> bytes | np.ndarray:
    """Return the bytes or the array of a picture; a text is the path of its file.

    Raises:
        ValueError: It is neither.
        OSError: There is no such file, or it cannot be read.
    """
    if isinstance(value, str):
        path = (base / Path(value).expanduser()).resolve()
        if hashed is None or not path.is_relative_to(hashed):
            reads.files[str(path)] = own_reads.stamp_of(str(path))
        return path.read_bytes()
    if isinstance(value, (bytes, np.ndarray)):
        return value
    kind = "null" if value is None else type(value).__name__
    raise ValueError(f"{kind}, expected the bytes of a file, its path as text, or an array")
