"""The statistics of the training rows: fill values, scaling and category numbers of each input."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.data.columns import NOT_YET, Columns, Dtype, all_missing, is_collected_later
from models.data.preparation import CategoricalInput, ImageInput, NumericInput
from models.errors import DataError
from models.project_spec.blocks import Data, Features, Image

MIN_ROWS_OF_IDENTITY = 50
_MOST_ROWS = (5, 95)
MOST_SPREADS = 1e4
"""Heavy tails stay below: of a lognormal of sigma 2.5, a million rows reach 2,000 ranges of the middle nine tenths."""


def numeric_input(
    name: str, values: np.ndarray, train: np.ndarray, data: Data, columns: Columns
) -> NumericInput | None:
    """Return the input of a numeric column; None, and why in `columns`, for one that is collected only lately.

    Args:
        name: The column.
        values: Its values (rows,), NaN for missing.
        train: True for rows that may be learnt from (rows,).
        data: The spec's data block.
        columns: The columns, into which left-out and extreme ones are written.

    Raises:
        DataError: The column has no value at all, or values too large to be scaled.
    """
    if is_collected_later(name, ~np.isnan(values), train) and name not in data.targets:
        columns.left_out[name] = NOT_YET
        return None
    part = fit_numeric(name, values[train], data.features, is_bounded=data.kind != "series")
    extremes = extremes_of(part, values[train])
    if extremes:
        columns.extremes[name] = extremes
    return part


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
    present = values[~np.isnan(values)]
    if not len(present):
        raise DataError(all_missing(name))
    low, high = _bounds(present) if is_bounded else (None, None)
    bounded = present if low is None else np.clip(present, low, high)
    with np.errstate(over="ignore", invalid="ignore"):
        shift, scale = _shift_and_scale(bounded, features.normalise)
        # Rounding errors give a constant column a spread of about one part in 1e16.
        scale = 1.0 if scale <= 1e-12 * np.abs(bounded).max() else scale
        reach = np.abs((bounded - shift) / scale).max()
    if not np.isfinite([shift, scale]).all() or not reach < np.finfo(np.float32).max:
        raise DataError(
            f"column {name!r}: its spread is no finite number, because its values reach {np.abs(present).max():.4g}: "
            "do those mean `missing`? Leave such cells empty in your source, or name the column in data.features.drop"
        )
    return NumericInput(name=name, fill=_fill(bounded, features.impute), shift=shift, scale=scale, low=low, high=high)


def extremes_of(part: NumericInput, values: np.ndarray) -> str | None:
    """Return what a column's extreme values are and what was made of them; None without any.

    Args:
        part: What `fit_numeric` learnt.
        values: The training values (rows,), NaN for missing.
    """
    present = values[~np.isnan(values)]
    distances = np.abs(present - np.median(present))
    is_beyond = np.zeros(len(present), bool)
    if part.low is not None and part.high is not None:
        is_beyond = (present < part.low) | (present > part.high)
        what = f"count as {part.low:.4g} or {part.high:.4g}, for else the others would be one number"
    if not is_beyond.any() and distances.any() and not np.ptp(np.percentile(present, _MOST_ROWS)):
        # A mostly constant column, of which it cannot be said what is usual.
        is_beyond = distances > MOST_SPREADS * np.median(distances[distances > 0])
        what = "are scaled as they are, so that the others are nearly one number"
    if not is_beyond.any():
        return None
    return f"{is_beyond.sum():,} values lie far from all others, such as {present[distances.argmax()]:.4g}, and {what}"


def _bounds(present: np.ndarray) -> tuple[float, float] | tuple[None, None]:
    """Return the ends of a column's values; of a mostly constant one its deviation is the range."""
    with np.errstate(over="ignore", invalid="ignore"):
        least, middle, most = np.percentile(present, [_MOST_ROWS[0], 50, _MOST_ROWS[1]])
        reach = MOST_SPREADS * ((most - least) or present.std() or abs(middle) or 1.0)
        low, high = float(middle - reach), float(middle + reach)
    return (low, high) if np.isfinite(reach) else (None, None)


def categorical_input(
    name: str, texts: pa.ChunkedArray, training: pa.ChunkedArray, dtype: Dtype, features: Features, columns: Columns
) -> CategoricalInput | None:
    """Return the input of a column of categories; None, and why in `columns`, for an id or one collected only lately.

    Args:
        name: The column.
        texts: Its values.
        training: Those of the training rows.
        dtype: The type of the raw column.
        features: How many categories to take, and the kinds that the spec names.
        columns: The columns, into which left-out ones are written.

    Raises:
        DataError: The column has no value at all.
    """
    if training.null_count == len(training) and texts.null_count < len(texts):
        columns.left_out[name] = NOT_YET
        return None
    if name not in features.kinds and names_each_row(training):
        columns.left_out[name] = "every training row has another value (an id)"
        return None
    return fit_categorical(name, training, dtype, features)


def fit_categorical(name: str, texts: pa.ChunkedArray, dtype: Dtype, features: Features) -> CategoricalInput:
    """Return the most frequent categories of the training rows, most frequent first (ties are ordered by name).

    Raises:
        DataError: The column has no value at all.
    """
    counts = pc.value_counts(texts.drop_null())
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    ordered = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[: features.max_categories]
    if not ordered:
        raise DataError(all_missing(name))
    return CategoricalInput(name=name, categories=[text for text, _ in ordered], dtype=dtype)


def names_each_row(texts: pa.ChunkedArray) -> bool:
    """Return True if every value differs: an id or free text, from which a model learns nothing about other rows."""
    present = texts.drop_null()
    return len(present) >= MIN_ROWS_OF_IDENTITY and pc.count_distinct(present).as_py() == len(present)


def fit_pixels(images: np.ndarray, image: Image) -> ImageInput:
    """Compute mean and standard deviation of each channel, of pixels / 255.

    Args:
        images: uint8 (rows, height, width, channel), training rows only.
        image: The images' shape.
    """
    counts = np.stack([np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(image.channels)])
    levels = np.arange(256) / 255.0
    means = counts @ levels / counts.sum(axis=1)
    variances = counts @ levels**2 / counts.sum(axis=1) - means**2
    stds = [float(std) if std > 1e-6 else 1.0 for std in np.sqrt(np.maximum(variances, 0.0))]
    return ImageInput(image=image, mean=[float(mean) for mean in means], std=stds)


def _fill(values: np.ndarray, impute: str) -> float:
    if impute == "zero":
        return 0.0
    return float(np.median(values) if impute == "median" else values.mean())


def _shift_and_scale(values: np.ndarray, normalise: str) -> tuple[float, float]:
    if normalise == "standard":
        return float(values.mean()), float(values.std())
    if normalise == "robust":
        lowest, low, middle, high, highest = np.percentile(values, [5, 25, 50, 75, 95])
        reach = max(values.max() - middle, middle - values.min())
        # Of a mostly constant column the quartiles are equal: then the range of nine tenths, or the deviation, scales.
        ranges = [each for each in (high - low, highest - lowest) if each > 0 and reach <= MOST_SPREADS * each]
        return float(middle), float(ranges[0] if ranges else values.std())
    if normalise == "minmax":
        return float(values.min()), float(values.max() - values.min())
    return 0.0, 1.0
