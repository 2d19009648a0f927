"""Columns of series whose values are known beforehand: each horizon has an input of its own, the column shifted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.errors import DataError
from models.inputs.numeric.record import NumericInput
from models.project_spec.window import Window


def future_inputs(window: Window) -> list[NumericInput]:
    """Return an input for each known column and horizon, not fitted yet: `promo_h7` is `promo` 7 steps later."""
    return [
        NumericInput(name=f"{name}_h{ahead}", fill=0.0, source=name, ahead=ahead)
        for name in window.known_future
        for ahead in window.horizons
    ]


def moved(values: np.ndarray, steps: np.ndarray, offset: int) -> np.ndarray:
    """Return the value `offset` steps later, or earlier if `offset` is negative; NaN where its stretch has none.

    Args:
        values: Float64 (step,), series by series and oldest first.
        steps: How many steps of the same series lie directly before each, without a gap (step,).
        offset: Steps.
    """
    place = np.arange(len(values)) + offset
    inside = np.clip(place, 0, len(values) - 1)
    is_there = (place == inside) & (steps[inside if offset > 0 else slice(None)] >= abs(offset))
    return np.where(is_there, values[inside], np.nan)


def with_future(columns: dict[str, np.ndarray], steps: np.ndarray, parts: Sequence[NumericInput]) -> np.ndarray:
    """Return the inputs of steps (step, input): the columns, and those known beforehand, shifted.

    Args:
        columns: Values by the name of the column, each float64 (step,), series by series and oldest first.
        steps: How many steps of the same series lie directly before each, without a gap (step,).
        parts: The model's numeric inputs.
    """
    columns_of_parts = [
        moved(columns[part.column], steps, part.ahead) if part.ahead else columns[part.column] for part in parts
    ]
    return np.stack(columns_of_parts, axis=1)


def ends_with_future(
    ends: np.ndarray, steps: np.ndarray, positions: np.ndarray, length: int, aheads: Sequence[int]
) -> np.ndarray:
    """Return the ends of windows that have the steps after them which hold inputs, (window,).

    Args:
        ends: The last step of each window.
        steps: How many steps of the same series lie directly before each, without a gap (step,).
        positions: Negative for a step that was inserted into a gap: it holds nothing (step,).
        length: Steps of a window.
        aheads: How many steps after a window those with inputs are; empty: none.

    Raises:
        DataError: No window has them.
    """
    has_future = np.ones(len(ends), dtype=bool)
    for ahead in aheads:
        after = np.minimum(ends + ahead, len(steps) - 1)
        has_future &= (after == ends + ahead) & (steps[after] >= ahead) & (positions[after] >= 0)
    if not has_future.any():
        raise DataError(
            f"no window of {length} steps has {max(aheads)} steps after it, for which the model takes what is known "
            "beforehand: give these steps too, with the columns of data.window.known_future, and null for the others"
        )
    chosen: np.ndarray = ends[has_future]
    return chosen
