"""Dates and times as inputs: seconds since 1970 in UTC, their cycles, and their statistics of the training rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.errors import DataError
from models.inputs.datetime.record import CYCLE_S, Cycle, DatetimeInput
from models.inputs.raw_rows import KindRows, LearntInputs, RawRows, Tensors, never, nothing_made
from models.inputs.types import NOT_YET, is_number, is_text
from models.ngrams.model import NgramModel

EARLIEST_S, LATEST_S = -62_135_596_800.0, 253_402_300_800.0
"""The years 1 to 9999, as seconds since 1970."""


MOST_CORRELATED = 0.95
"""A time whose ranks correlate more than this with the time of the split has no trend: the future lies beyond it."""


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
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_text(column.type):
        column = _parsed(column, name)
    if is_number(column.type):
        seconds = column.cast(pa.float64(), safe=False).to_numpy()
    else:
        zone = getattr(column.type, "tz", None)
        micros = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
        seconds = micros.cast(pa.float64(), safe=False).to_numpy() / 1e6
    outside = np.flatnonzero((seconds < EARLIEST_S) | (seconds >= LATEST_S))
    if len(outside):
        got, row = seconds[outside[0]], (outside if positions is None else np.asarray(positions)[outside])[0] + 1
        raise DataError(f"column {name!r}, row {row}: got {got:g}, expected a time of the years 1 to 9999: {_CURE}")
    return np.asarray(seconds)


def fit_datetime(name: str, seconds: np.ndarray, split_times: np.ndarray | None = None) -> DatetimeInput:
    """Return the input of a time column, from its training values in seconds (rows,), NaN for missing.

    A cycle is an input if the training rows span at least one turn of it and differ within it: the hours of a column
    of dates are all zero. The trend is left out for a constant, and for a time that runs with the time of the split.

    Args:
        name: The column.
        seconds: Training values.
        split_times: The time of the split in the same rows, if rows are split by time.
    """
    known = ~np.isnan(seconds)
    values = seconds[known]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    runs = split_times is not None and low < high and _rank_correlation(values, split_times[known]) > MOST_CORRELATED
    scale = float(values.std()) if len(values) else 0.0
    return DatetimeInput(
        name=name,
        cycles=[cycle for cycle in CYCLE_S if _turns(values, cycle)],
        trend=low < high and not runs,
        low=low,
        high=high,
        shift=float(values.mean()) if len(values) else 0.0,
        scale=scale if scale > 0 else 1.0,
    )


def datetime_features(seconds: np.ndarray, parts: Sequence[DatetimeInput]) -> np.ndarray:
    """Return the features of times (rows, parts) as float32 (rows, features): all sines, all cosines, all trends.

    The arithmetic is float64 until the last cast, as in the exported graph.
    """
    cycles = [(at, CYCLE_S[cycle]) for at, part in enumerate(parts) for cycle in part.cycles]
    trends = [at for at, part in enumerate(parts) if part.trend]
    angle = np.fmod(seconds[:, [at for at, _ in cycles]], [period for _, period in cycles])
    angle = angle / [period / (2 * np.pi) for _, period in cycles]
    low, high, shift, scale = (
        np.array([getattr(parts[at], field) for at in trends]) for field in ("low", "high", "shift", "scale")
    )
    trend = (np.clip(seconds[:, trends], low, high) - shift) / scale
    features = np.hstack([np.sin(angle), np.cos(angle), trend])
    filled: np.ndarray = np.where(np.isnan(features), 0.0, features).astype(np.float32)
    return filled


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
    most = 0
    for kind in kinds:
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            most = max(most, _num_taken(texts, kind))
    is_time = any(_num_taken(texts.slice(most, 1), kind) for kind in TIMES)
    expected = "all times with a zone, or all without" if is_time else "a time"
    text, cure = texts[most].as_py(), f"{_CURE}; a source function (`source: ./data.py:load`) can parse them"
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
    texts = pc.utf8_trim_whitespace(column.cast(pa.string()))
    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    return parsed_times(texts, f"column {name!r}, declared datetime", (*TIMES, pa.float64()))


def _turns(values: np.ndarray, cycle: Cycle) -> bool:
    period = CYCLE_S[cycle]
    if not len(values) or np.ptp(values) < period * (0.99 if cycle == "year" else 1.0):
        return False
    step = {"day": 1.0, "week": CYCLE_S["day"], "year": CYCLE_S["day"]}[cycle]
    phases = np.floor(np.mod(values, period) / step)
    is_monthly = cycle == "week" and bool(
        (values.astype("datetime64[s]").astype("datetime64[M]") == _days(values)).all()
    )
    return bool(phases.min() < phases.max()) and not is_monthly


def _days(values: np.ndarray) -> np.ndarray:
    return values.astype("datetime64[s]").astype("datetime64[D]")


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    ranks = [np.argsort(np.argsort(each, kind="stable"), kind="stable") for each in (first, second)]
    correlation: float = np.asarray(np.corrcoef(np.stack(ranks)))[0, 1]
    return correlation


def _guess(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _misfit(name: str, kind: pa.DataType) -> str:
    del name
    is_flag = pa.types.is_boolean(kind)
    return f"its type is {kind}, no time: say another kind in data.features.kinds" if is_flag else ""


def _fit(names: Sequence[str], rows: RawRows, learnt: LearntInputs) -> list[DatetimeInput]:
    parts = []
    for name in names:
        seconds = as_seconds(rows.table.column(name), name, rows.positions)
        part = fit_datetime(name, seconds[rows.train], rows.split_times)
        if part.width:
            learnt.prepared[name] = pa.array(seconds)
            parts.append(part)
        else:
            is_empty = np.isnan(seconds[rows.train]).all()
            reason = NOT_YET if is_empty else "a time without any cycle or trend in the training rows"
            learnt.columns.left_out[name] = reason
    return parts


def _values(column: pa.ChunkedArray, part: DatetimeInput) -> pa.ChunkedArray:
    return pa.chunked_array([as_seconds(column, part.name)])


def _encode(rows: pa.Table, parts: Sequence[DatetimeInput], ngrams: Mapping[str, NgramModel]) -> Tensors:
    del ngrams
    seconds = np.empty((rows.num_rows, len(parts)))
    for position, part in enumerate(parts):
        seconds[:, position] = rows.column(part.name).to_numpy()
    return {"numeric": datetime_features(seconds, parts)}


ROWS = KindRows(
    guess=_guess,
    reads=never,
    misfit=_misfit,
    fit=_fit,
    values=_values,
    made=nothing_made,
    encode=_encode,
)
