"""The grades of a ranking: whole numbers, of which some groups hold different ones."""

from __future__ import annotations

import numpy as np

from models.data.preparation import SPLITS
from models.errors import DataError

LARGEST_GRADE = 30
"""The gain of a grade is 2^grade - 1. Source: LightGBM has gains for grades up to 30 (`label_gain`)."""


def check_grades(grades: np.ndarray, name: str) -> None:
    """Refuse a target that holds other values than grades.

    Args:
        grades: The target, float64 (row,).
        name: Its column.

    Raises:
        DataError: A value is no whole number from 0 to `LARGEST_GRADE`; names the first.
    """
    strange = np.flatnonzero((grades != np.round(grades)) | (grades < 0) | (grades > LARGEST_GRADE))
    if len(strange):
        raise DataError(
            f"data.target {name!r}: got {grades[strange[0]]:g} among its values, expected grades: whole numbers from 0 "
            f"(not relevant) to {LARGEST_GRADE}; cut the values into grades in the source, or say `data.task: "
            "regression`"
        )


def check_groups(target: np.ndarray, codes: np.ndarray, column: str) -> None:
    """Refuse splits without any group that has an order to learn or to find.

    Args:
        target: Grades and groups (row, 2).
        codes: The split of each row.
        column: The column that names the groups.

    Raises:
        DataError: No group of a split has two different grades.
    """
    for code, split in enumerate(SPLITS):
        rows = target[codes == code]
        num_groups = len(np.unique(rows[:, 1]))
        if len(np.unique(rows, axis=0)) == num_groups:
            raise DataError(
                f"data.split.column {column!r}: none of the {num_groups:,} groups of the {split} rows "
                f"({len(rows):,}) has two different grades, so there is no order: name the column that rows to be "
                "compared share, or give more groups"
            )
