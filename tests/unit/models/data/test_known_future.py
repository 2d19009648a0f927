"""What is known beforehand: shifted columns of series, and windows that lack it."""

from __future__ import annotations

import numpy as np
import pytest

from models.data.known_future import ends_with_future, future_inputs, moved, with_future
from models.errors import DataError
from models.inputs.numeric.record import NumericInput
from models.project_spec.window import Window

VALUES = np.arange(6.0)
STEPS = np.array([0, 1, 2, 0, 1, 2])
"""Two series, or one with a gap."""
NONE = np.nan


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (1, [1, 2, NONE, 4, 5, NONE]),
        (2, [2, NONE, NONE, 5, NONE, NONE]),
        (9, [NONE] * 6),
        (-1, [NONE, 0, 1, NONE, 3, 4]),
        (0, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_value_is_moved_within_its_series(by: int, expected: list[float]) -> None:
    np.testing.assert_array_equal(moved(VALUES, STEPS, by), expected)


def test_each_known_column_is_an_input_for_each_horizon() -> None:
    parts = future_inputs(Window(length=2, horizon=[1, 2], known_future=["promo"]))
    assert [(part.name, part.column, part.ahead) for part in parts] == [
        ("promo_h1", "promo", 1),
        ("promo_h2", "promo", 2),
    ]
    made = with_future({"y": -VALUES, "promo": VALUES}, STEPS, [NumericInput(name="y", fill=0.0), *parts])
    np.testing.assert_array_equal(made[:, 0], -VALUES)
    np.testing.assert_array_equal(made[:, 2], moved(VALUES, STEPS, 2))


def test_windows_end_where_enough_steps_follow() -> None:
    ends, there = np.array([4, 1, 2, 3]), np.arange(6)
    assert ends_with_future(ends, STEPS, there, 1, [1]).tolist() == [4, 1, 3]
    with pytest.raises(DataError, match=r"no window of 1 steps has 3 steps after it, .*give these steps too"):
        ends_with_future(ends, STEPS, there, 1, [2, 3])


def test_windows_end_where_no_step_that_is_read_was_inserted() -> None:
    ends, positions = np.arange(6), np.array([0, 1, 2, -1, 3, 4])
    assert ends_with_future(ends, np.arange(6), positions, 1, [1]).tolist() == [0, 1, 3, 4]
    assert ends_with_future(ends, np.arange(6), positions, 1, [2]).tolist() == [0, 2, 3]
