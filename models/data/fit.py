"""The statistics of the training rows: fill values, scaling and category numbers of each input."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.data.columns import Dtype, all_missing
from models.data.preparation import CategoricalInput, ImageInput, NumericInput
from models.errors import DataError
from models.project_spec.blocks import Features, Image

MIN_ROWS_OF_IDENTITY = 50


def fit_numeric(name: str, values: np.ndarray, features: Features) -> NumericInput:
    """Compute fill, shift and scale from training values (rows,), NaN for missing; a constant column gets scale 1.

    Raises:
        DataError: The column has no value at all, or values too large to be scaled.
    """
    present = values[~np.isnan(values)]
    if not len(present):
        raise DataError(all_missing(name))
    with np.errstate(over="ignore", invalid="ignore"):
        shift, scale = _shift_and_scale(present, features.normalise)
    if not np.isfinite([shift, scale]).all():
        raise DataError(
            f"column {name!r}: its spread is no finite number, because its values reach {np.abs(present).max():.4g}: "
            "do those mean `missing`? Leave such cells empty in your source, or name the column in data.features.drop"
        )
    # Rounding errors give a constant column a spread of about one part in 1e16.
    constant = scale <= 1e-12 * np.abs(present).max()
    return NumericInput(name=name, fill=_fill(present, features.impute), shift=shift, scale=1.0 if constant else scale)


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
        low, middle, high = np.percentile(values, [25, 50, 75])
        return float(middle), float(high - low)
    if normalise == "minmax":
        return float(values.min()), float(values.max() - values.min())
    return 0.0, 1.0
