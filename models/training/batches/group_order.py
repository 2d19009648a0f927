"""The rows of a ranking group by group, as LightGBM takes them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from models.errors import DataError
from models.metrics.ranking import groups_of

MOST_ROWS = 10_000
"""Most rows of a group. Source: LightGBM refuses a longer query."""


class GroupOrder(NamedTuple):
    """Positions of the examples, group by group (example,), and the number of rows of each group (group,)."""

    positions: torch.Tensor
    sizes: NDArray[np.int64]


def group_order(values: NDArray[Any], column: str) -> GroupOrder:
    """Return the order of the examples of a ranking.

    Args:
        values: Grade and group of each example (example, 2).
        column: The column that names the groups.

    Raises:
        DataError: A group has more rows than LightGBM takes.
    """
    groups = groups_of(values)
    sizes = np.bincount(groups)
    if sizes.max() > MOST_ROWS:
        raise DataError(
            f"data.split.column {column!r}: a group has {sizes.max():,} rows, expected {MOST_ROWS:,} at most for "
            "trees: name a finer group, or keep the candidates of each group only"
        )
    return GroupOrder(torch.from_numpy(np.argsort(groups, kind="stable")), sizes)
