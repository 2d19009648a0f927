"""The matrix that an estimator learns from: numbers and categories of a table, or the features of a series' windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.estimators.rows import Categories, EstimatorRow, Numbers

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class InputPlan:
    """How numbers and indices of categories become the matrix, in float32.

    Attributes:
        shift: Taken from each number, then divided by `scale`; both empty: numbers stay as they are.
        scale: The spread of each number.
        one_hot: The number of values of each category, which becomes so many columns; empty: indices stay one column.
        num_numbers: The first columns are numbers, the others indices of categories.
        num_categories: Of the indices.
    """

    shift: tuple[float, ...]
    scale: tuple[float, ...]
    one_hot: tuple[int, ...]
    num_numbers: int
    num_categories: int

    @property
    def width(self) -> int:
        """The columns of the matrix."""
        return self.num_numbers + (sum(self.one_hot) or self.num_categories)

    def matrix(self, features: Matrix) -> Matrix:
        """Return the matrix (row, column) for numbers and indices (row, input)."""
        numbers, indices = features[:, : self.num_numbers], features[:, self.num_numbers :]
        if self.shift:
            numbers = np.divide(numbers - np.array(self.shift, np.float32), np.array(self.scale, np.float32))
        if self.one_hot:
            columns = [
                indices[:, [position]] == np.arange(width, dtype=np.float32)
                for position, width in enumerate(self.one_hot)
            ]
            indices = np.concatenate(columns, axis=1).astype(np.float32)
        return np.ascontiguousarray(np.concatenate([numbers, indices], axis=1))


def input_plan(
    row: EstimatorRow, features: Matrix, cardinalities: Sequence[int], weights: NDArray[Any] | None
) -> InputPlan:
    """Return how an estimator's matrix is made, from the training rows.

    Args:
        row: The facts about the estimator.
        features: Numbers, then indices of categories (row, input).
        cardinalities: Of the categories.
        weights: Of the rows (row,); None: all ones.
    """
    num_numbers = features.shape[1] - len(cardinalities)
    shift, scale = _SPREADS[row.numbers](features[:, :num_numbers], weights)
    return InputPlan(shift, scale, _WIDTHS[row.categories](cardinalities), num_numbers, len(cardinalities))


_Spread = tuple[tuple[float, ...], tuple[float, ...]]


def _as_prepared(numbers: Matrix, weights: NDArray[Any] | None) -> _Spread:
    return (), ()


def _standardised(numbers: Matrix, weights: NDArray[Any] | None) -> _Spread:
    """Return the mean and the spread of each number, over the rows that have it."""
    doubles = np.ma.masked_invalid(numbers.astype(np.float64))
    mean = np.ma.average(doubles, axis=0, weights=weights)
    spread = np.sqrt(np.ma.filled(np.ma.average((doubles - mean) ** 2, axis=0, weights=weights), 0.0))
    return tuple(np.ma.filled(mean, 0.0).tolist()), tuple(np.where(spread > 0, spread, 1.0).tolist())


_SPREADS: dict[Numbers, Callable[[Matrix, NDArray[Any] | None], _Spread]] = {
    "prepared": _as_prepared,
    "standardised": _standardised,
}


def _no_widths(cardinalities: Sequence[int]) -> tuple[int, ...]:
    return ()


_WIDTHS: dict[Categories, Callable[[Sequence[int]], tuple[int, ...]]] = {
    "native": _no_widths,
    "index": _no_widths,
    "one-hot": tuple,
}
