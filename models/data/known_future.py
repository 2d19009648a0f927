"""Columns of series whose values are known beforehand: each horizon has an input of its own, the column shifted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.data.preparation import NumericInput
from models.errors import DataError
from models.project_spec.window import Window


def future_inputs(window: Window) -> list[NumericInput]:
    """Return an input for each known column and horizon, not fitted yet: `promo_h7` is `promo` 7 steps later."""
    return [
        NumericInput(name=f"{name}_h{ahead}", fill=0.0, source=name, ahead=ahead)
        for name in window.known_future
        for ahead in window.horizons
    ]


def moved(values: np.ndarray, steps: np.ndarray, by: int) -> np.ndarray:
    """Return the value `by` steps later, or earlier if `by` is negative; NaN where the stretch without a gap has none.

    Args:
        values: Float64 (step,), series by series and oldest first.
        steps: How many steps of the same series lie directly before each, without a gap (step,).
        by: Steps.
    """
    place = np.arange(len(values)) + by
    inside = np.clip(place, 0, len(values) - 1)
    is_there = (place == inside) & (steps[inside if by > 0 else slice(None)] >= abs(by))
    return np.where(is_there, values[inside], np.nan)


def with_future(columns: dict[str, np.ndarray], steps: np.ndarray, parts: Sequence[NumericInput]) -> np.ndarray:
    """Return the inputs of steps (step, input): the columns, and those known beforehand, shifted.

    Args:
        columns: Values by the name of the column, each float64 (step,), series by series and oldest first.
        steps: How many steps of the same series lie directly before each, without a gap (step,).
        parts: The model's numeric inputs.
    """
    made = [moved(columns[part.column], steps, part.ahead) if part.ahead else columns[part.column] for part in parts]
    return np.stack(made, axis=1)


def ends_with_future(ends: np.ndarray, steps: np.ndarray, length: int, num_future: int) -> np.ndarray:
    """Return the ends of windows that have enough steps after them, (window,).

    Args:
        ends: The last step of each window.
        steps: How many steps of the same series lie directly before each, without a gap (step,).
        length: Steps of a window.
        num_future: Steps after a window that hold its inputs; 0: none.

    Raises:
        DataError: No window has them.
    """
    after = np.minimum(ends + num_future, len(steps) - 1)
    chosen: np.ndarray = ends[(after == ends + num_future) & (steps[after] >= num_future)]
    if not len(chosen):
        raise DataError(
            f"no window of {length} steps has {num_future} steps after it, for which the model takes what is known "
            "beforehand: give these steps too, with the columns of data.window.known_future, and null for the others"
        )
    return chosen


def check_known(last: np.ndarray, parts: Sequence[NumericInput], windows: Sequence[object], what: str) -> None:
    """Refuse windows that lack a value which must be known beforehand.

    Args:
        last: The inputs at the last step of each window (window, input).
        parts: The model's numeric inputs.
        windows: The names of the windows in messages.
        what: The word for them.

    Raises:
        DataError: Names the first window and the column.
    """
    for at, part in enumerate(parts):
        lacks = np.isnan(last[:, at])
        if part.ahead and lacks.any():
            place = f"{what} {windows[int(lacks.argmax())]}"
            raise DataError(
                f"{place}: no value of {part.column!r} {part.ahead} steps later, which the model takes as known "
                "beforehand: give it"
            )
