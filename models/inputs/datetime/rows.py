"""Dates and times as inputs: seconds since 1970 in UTC, their cycles, and their statistics of the training rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from models import scratch
from models.inputs.datetime.record import CYCLE_S, STEPS, Cycle, DatetimeInput
from models.inputs.raw_rows import KindRows, LearntInputs, RawRows, Tensors
from models.inputs.record import LearntFiles
from models.inputs.times import as_seconds
from models.inputs.types import NOT_YET

MOST_CORRELATED = 0.95
"""A time whose ranks correlate more than this with the time of the split has no trend: the future lies beyond it."""


def fit_datetime(name: str, seconds: np.ndarray, split_times: np.ndarray | None = None) -> DatetimeInput:
    """Return the input of a time column, from its training values in seconds (rows,), NaN for missing.

    A cycle is an input if the training rows span at least one turn of it and differ within it: the hours of a column
    of dates are all zero. The trend is left out for a constant, and for a time that runs with the time of the split.

    Args:
        name: The column.
        seconds: Training values.
        split_times: The time of the split in the same rows, if rows are split by time.
    """
    is_present = ~np.isnan(seconds)
    values = scratch.chosen(seconds, is_present)
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    runs = (
        split_times is not None
        and low < high
        and _rank_correlation(values, scratch.chosen(split_times, is_present)) > MOST_CORRELATED
    )
    scale = scratch.deviation(values) if len(values) else 0.0
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
    cycles = [(position, CYCLE_S[cycle]) for position, part in enumerate(parts) for cycle in part.cycles]
    trends = [position for position, part in enumerate(parts) if part.trend]
    angle = np.fmod(seconds[:, [position for position, _ in cycles]], [period for _, period in cycles])
    angle = angle / [period / (2 * np.pi) for _, period in cycles]
    low, high, shift, scale = (
        np.array([getattr(parts[position], field) for position in trends])
        for field in ("low", "high", "shift", "scale")
    )
    trend = (np.clip(seconds[:, trends], low, high) - shift) / scale
    turns = np.rint(np.hstack([np.sin(angle), np.cos(angle)]) * STEPS) / STEPS
    features = np.hstack([turns, trend])
    filled: np.ndarray = np.where(np.isnan(features), 0.0, features).astype(np.float32)
    return filled


def _turns(values: np.ndarray, cycle: Cycle) -> bool:
    period = CYCLE_S[cycle]
    if not len(values) or np.ptp(values) < period * (0.99 if cycle == "year" else 1.0):
        return False
    step = {"day": 1.0, "week": CYCLE_S["day"], "year": CYCLE_S["day"]}[cycle]
    phases = scratch.computed(lambda part: np.floor(np.mod(part, period) / step), values)
    is_monthly = cycle == "week" and all(
        (values[part].astype("datetime64[s]").astype("datetime64[M]") == _days(values[part])).all()
        for part in scratch.parts(len(values))
    )
    return bool(phases.min() < phases.max()) and not is_monthly


def _days(values: np.ndarray) -> np.ndarray:
    return values.astype("datetime64[s]").astype("datetime64[D]")


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    step = -(-len(first) // scratch.PART)  # of a large table every n-th row
    ranks = [np.argsort(np.argsort(values[::step], kind="stable"), kind="stable") for values in (first, second)]
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
        training = scratch.chosen(seconds, rows.train)
        part = fit_datetime(name, training, rows.split_times)
        if part.width:
            learnt.add(name, pa.array(seconds))
            parts.append(part)
        else:
            is_empty = np.isnan(training).all()
            reason = NOT_YET if is_empty else "a time without any cycle or trend in the training rows"
            learnt.columns.left_out[name] = reason
    return parts


def _values(column: pa.ChunkedArray, part: DatetimeInput) -> pa.ChunkedArray:
    return pa.chunked_array([as_seconds(column, part.name)])


def _encode(rows: pa.Table, parts: Sequence[DatetimeInput], files: LearntFiles) -> Tensors:
    del files
    seconds = np.empty((rows.num_rows, len(parts)))
    for position, part in enumerate(parts):
        seconds[:, position] = rows.column(part.name).to_numpy()
    return {"numeric": datetime_features(seconds, parts)}


ROWS = KindRows(
    fit=_fit,
    values=_values,
    encode=_encode,
    guess=_guess,
    misfit=_misfit,
)
