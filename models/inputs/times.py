"""Dates and times of rows as seconds since 1970 in UTC."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.errors import DataError
from models.inputs.types import is_number, is_text
from models.sources.whole_numbers import floats_of

EARLIEST_S, LATEST_S = -62_135_596_800.0, 253_402_300_800.0
"""The years 1 to 9999, as seconds since 1970."""


TIMES = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
"""Types of times without and with a zone."""


_CURE = "write times as ISO 8601 (2024-05-31T14:30:00Z), or as seconds since 1970"


def as_seconds(column: pa.ChunkedArray, name: str, positions: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
    """Return dates, times, ISO texts or seconds since 1970 as float64 seconds (rows,), NaN for missing.

    A time without a zone is in UTC.

    Args:
        column: The values.
        name: The column's name.
        positions: The position of each row in the source (row,), from 0, for messages; default: all rows are here.

    Raises:
        DataError: A text is no time, or a time lies outside the years 1 to 9999 (milliseconds, for example).
    """
    if is_text(column.type):
        column = _parsed(column, name)
    zone = getattr(column.type, "tz", None)

    def seconds_of(part: slice) -> np.ndarray:
        rows = column.slice(part.start, part.stop - part.start)
        if is_number(column.type):
            return np.asarray(floats_of(rows).to_numpy())
        micros = rows.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
        return np.asarray(micros.cast(pa.float64(), safe=False).to_numpy() / 1e6)

    seconds = scratch.filled(len(column), np.float64, seconds_of)
    outside = np.flatnonzero((seconds < EARLIEST_S) | (seconds >= LATEST_S))
    if len(outside):
        got, row = seconds[outside[0]], (outside if positions is None else np.asarray(positions)[outside])[0] + 1
        raise DataError(f"column {name!r}, row {row}: got {got:g}, expected a time of the years 1 to 9999: {_CURE}")
    return seconds


def parsed_times(texts: pa.ChunkedArray, where: str, kinds: Sequence[pa.DataType] = TIMES) -> pa.ChunkedArray:
    """Return texts as the first of these types that takes all of them.

    Args:
        texts: ISO times, or numbers if `kinds` has a type of numbers; null for missing.
        where: Where the texts stand, for the message.
        kinds: The types.

    Cost: linear; to name the text that is no time, log2(rows) times as much.

    Raises:
        DataError: Names the first text that the type which takes the most before it does not take.
    """
    most_times = 0
    for kind in kinds:
        try:
            return scratch.by_parts(texts, lambda part, kind=kind: part.cast(kind))  # type: ignore[misc]
        except pa.ArrowInvalid:
            most_times = max(most_times, _num_taken(texts, kind))
    is_time = any(_num_taken(texts.slice(most_times, 1), kind) for kind in TIMES)
    expected = "all times with a zone, or all without" if is_time else "a time"
    text, cure = texts[most_times].as_py(), f"{_CURE}; a source function (`source: ./data.py:load`) can parse them"
    raise DataError(f"{where}: got {text!r}, expected {expected}: {cure}")


def _num_taken(texts: pa.ChunkedArray, kind: pa.DataType) -> int:
    """Return how many of the first texts a type takes, by bisection."""

    def is_refused(num: int) -> bool:
        try:
            texts.slice(0, num).cast(kind)
        except pa.ArrowInvalid:
            return True
        return False

    return bisect_left(range(1, len(texts) + 1), True, key=is_refused)


def _parsed(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    texts = scratch.by_parts(column, _trimmed)
    return parsed_times(texts, f"column {name!r}, declared datetime", (*TIMES, pa.float64()))


def _trimmed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    texts = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
