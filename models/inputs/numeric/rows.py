"""Numbers as inputs: fill value, bounds and scaling by the training rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from models import scratch
from models.errors import DataError
from models.inputs.numeric.record import NumericInput, ScaledNumber
from models.inputs.raw_rows import KindRows, LearntInputs, RawRows, Tensors
from models.inputs.record import LearntFiles
from models.inputs.types import NOT_YET, all_missing, as_float64, is_collected_later, is_number
from models.project_spec.blocks import Features

_MOST_ROWS = (5, 95)
MOST_SPREADS = 1e4
"""Heavy tails stay below: of a lognormal of sigma 2.5, a million rows reach 2,000 ranges of the middle nine tenths."""


def fit_numeric(name: str, values: np.ndarray, features: Features, *, is_bounded: bool = True) -> NumericInput:
    """Compute fill, shift, scale and bounds from training values (rows,), NaN for missing; a constant has scale 1.

    Values end at `MOST_SPREADS` ranges of the middle nine tenths of the rows from the median: beside one further away
    the others would become one number in float32, and a late one would be an enormous input, or infinite.

    Args:
        name: The column.
        values: Its training values.
        features: How to impute and normalise.
        is_bounded: False for series, whose forecasts continue the values themselves.

    Raises:
        DataError: The column has no value at all, or values too large to be scaled.
    """
    present = scratch.chosen(values, ~np.isnan(values))
    if not len(present):
        raise DataError(all_missing(name))
    low, high = _bounds(present) if is_bounded else (None, None)
    ends = np.array([present.min(), present.max()])
    most, are_within = max(ends[1], -ends[0]), low is None or high is None or (low <= ends[0] and ends[1] <= high)
    bounded = present if are_within else scratch.computed(lambda part: np.clip(part, low, high), present)
    ends = ends if are_within else np.clip(ends, low, high)
    with np.errstate(over="ignore", invalid="ignore"):
        shift, scale = _shift_and_scale(bounded, features.normalise)
        # Rounding errors give a constant column a spread of about one part in 1e16.
        scale = 1.0 if scale <= 1e-12 * np.abs(ends).max() else scale
        reach = np.abs((ends - shift) / scale).max()
    if not np.isfinite([shift, scale]).all() or not reach < np.finfo(np.float32).max:
        raise DataError(
            f"column {name!r}: its spread is no finite number, because its values reach {most:.4g}: "
            "do those mean `missing`? Leave such cells empty in your source, or name the column in data.features.drop"
        )
    return NumericInput(name=name, fill=_fill(bounded, features.impute), shift=shift, scale=scale, low=low, high=high)


def extremes_of(part: NumericInput, values: np.ndarray) -> str | None:
    """Return what a column's extreme values are and what was made of them; None without any.

    Args:
        part: What `fit_numeric` learnt.
        values: The training values (rows,), NaN for missing.
    """
    present = scratch.chosen(values, ~np.isnan(values))
    is_cut = part.low is not None and part.high is not None and (present.min() < part.low or present.max() > part.high)
    if not is_cut and np.ptp(np.percentile(present, _MOST_ROWS)):
        return None
    median = np.median(present)
    distances = scratch.computed(lambda part: np.abs(part - median), present)
    is_beyond = np.zeros(len(present), bool)
    if part.low is not None and part.high is not None:
        is_beyond = (present < part.low) | (present > part.high)
        consequence = f"count as {part.low:.4g} or {part.high:.4g}, for else the others would be one number"
    if not is_beyond.any() and distances.any():
        # A mostly constant column, of which it cannot be said what is usual.
        is_beyond = distances > MOST_SPREADS * np.median(scratch.chosen(distances, distances > 0))
        consequence = "are scaled as they are, so that the others are nearly one number"
    if not is_beyond.any():
        return None
    return (
        f"{is_beyond.sum():,} values lie far from all others, such as {present[distances.argmax()]:.4g}, and "
        f"{consequence}"
    )


def _bounds(present: np.ndarray) -> tuple[float, float] | tuple[None, None]:
    """Return the ends of a column's values; of a mostly constant one its deviation is the range."""
    with np.errstate(over="ignore", invalid="ignore"):
        low_end, middle, high_end = np.percentile(present, [_MOST_ROWS[0], 50, _MOST_ROWS[1]])
        reach = MOST_SPREADS * ((high_end - low_end) or scratch.deviation(present) or abs(middle) or 1.0)
        low, high = float(middle - reach), float(middle + reach)
    return (low, high) if np.isfinite(reach) else (None, None)


def _fill(values: np.ndarray, impute: str) -> float:
    if impute == "zero":
        return 0.0
    return float(np.median(values) if impute == "median" else values.mean())


def _shift_and_scale(values: np.ndarray, normalise: str) -> tuple[float, float]:
    if normalise == "standard":
        return float(values.mean()), scratch.deviation(values)
    if normalise == "robust":
        lowest, low, middle, high, highest = np.percentile(values, [5, 25, 50, 75, 95])
        reach = max(values.max() - middle, middle - values.min())
        # Of a mostly constant column the quartiles are equal: then the range of nine tenths, or the deviation, scales.
        ranges = [extent for extent in (high - low, highest - lowest) if extent > 0 and reach <= MOST_SPREADS * extent]
        return float(middle), float(ranges[0] if ranges else scratch.deviation(values))
    if normalise == "minmax":
        return float(values.min()), float(values.max() - values.min())
    return 0.0, 1.0


def encode_numeric(values: np.ndarray, part: ScaledNumber) -> np.ndarray:
    """`(value or fill - shift) / scale` in float64, then float32 (rows,); values end at `low` and `high`."""
    filled = np.where(np.isnan(values), part.fill, values)
    return standardised(filled if part.low is None else np.clip(filled, part.low, part.high), part)


def standardised(values: np.ndarray, part: ScaledNumber) -> np.ndarray:
    """`(value - shift) / scale` in float64, then float32 (rows,); missing values stay missing."""
    encoded: np.ndarray = ((values - part.shift) / part.scale).astype(np.float32)
    return encoded


def numeric_matrix(rows: pa.Table, parts: Sequence[ScaledNumber], prefix: str = "") -> np.ndarray:
    """Return numbers as `encode_numeric` makes them, float32 (rows, parts)."""
    matrix = np.empty((rows.num_rows, len(parts)), dtype=np.float32)
    for position, part in enumerate(parts):
        matrix[:, position] = encode_numeric(rows.column(prefix + part.name).to_numpy(), part)
    return matrix


def _fit(names: Sequence[str], rows: RawRows, learnt: LearntInputs) -> list[NumericInput]:
    parts, data = [], rows.data
    for name in names:
        values = as_float64(rows.table.column(name), name)
        if is_collected_later(name, ~np.isnan(values), rows.seen) and name not in data.targets:
            learnt.columns.left_out[name] = NOT_YET
            continue
        seen = scratch.chosen(values, rows.seen)
        part = fit_numeric(name, seen, data.features, is_bounded=data.kind != "series")
        extremes = extremes_of(part, seen)
        if extremes:
            learnt.columns.extremes[name] = extremes
        learnt.add(name, pa.array(values))
        parts.append(part)
    return parts


def _misfit(name: str, kind: pa.DataType) -> str:
    is_time = pa.types.is_temporal(kind)
    return f"its type is {kind}, no number: say `{name}: datetime` in data.features.kinds" if is_time else ""


def _values(column: pa.ChunkedArray, part: NumericInput) -> pa.ChunkedArray:
    return pa.chunked_array([as_float64(column, part.name)])


def _encode(rows: pa.Table, parts: Sequence[NumericInput], files: LearntFiles) -> Tensors:
    del files
    return {"numeric": numeric_matrix(rows, parts)}


ROWS = KindRows(
    fit=_fit,
    values=_values,
    encode=_encode,
    guess=is_number,
    misfit=_misfit,
)
