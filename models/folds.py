"""Folds for cross-fitting: what is learnt of the other folds is applied to the one that is left out.

A fold never divides a unit of independence. So no number of a row is learnt from its own unit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models import scratch


class Units(NamedTuple):
    """The unit of independence that each row is of.

    Attributes:
        of_rows: Rows with the same number are not independent: a group, or a time (row,).
        in_order: The numbers follow each other in time. Neighbours are then alike.
    """

    of_rows: NDArray[Any]
    in_order: bool = False

    def at(self, rows: NDArray[Any]) -> Units:
        """Return the units of some rows, by their positions or by a mask."""
        of_rows = scratch.chosen(self.of_rows, rows) if rows.dtype == bool else self.of_rows[rows]
        return Units(of_rows, self.in_order)

    def folds(self, num_folds: int, seed: int = 0) -> NDArray[np.int64]:
        """Return the fold of each row, int64 (row,), from 0 on; fewer than `num_folds` if there are fewer units.

        Units are dealt at random. In the order of time, folds are stretches with about as many rows each.

        Args:
            num_folds: Most folds.
            seed: Of the order in which units are dealt.
        """
        names = scratch.unique(self.of_rows)
        unit = scratch.ranks(self.of_rows, names)
        if self.in_order:
            sizes, before = scratch.filled(len(names), np.int64, lambda part: 0), 0
            for part in scratch.parts(len(unit)):
                np.add.at(sizes, unit[part], 1)
            folds = scratch.empty(len(names), np.int64)
            for part in scratch.parts(len(names)):
                middles = (before + np.cumsum(sizes[part]) - sizes[part] / 2) / max(1, len(self.of_rows))
                folds[part] = middles * min(num_folds, len(names))
                before += int(sizes[part].sum())
        else:
            folds = np.random.default_rng(seed).permutation(len(names))
            folds %= num_folds
        return scratch.filled(len(unit), np.int64, lambda part: folds[unit[part]])


def rows_apart(num_rows: int) -> Units:
    """Return the units of rows that are all independent of each other."""
    return Units(np.arange(num_rows))
