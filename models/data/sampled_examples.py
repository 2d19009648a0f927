"""Some examples of a split, for what need not see all: each weighs something, and no group of a ranking is divided."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from models.data.feeds import spread_positions
from models.data.weights import weighing_examples
from models.kinds.task import PerTask, Task
from models.metrics.ranking import groups_of


def sampled_examples(prepared: Path, split: str, target: np.ndarray, task: Task, limit: int) -> np.ndarray:
    """Return the positions of at most about `limit` examples of a split, int64 (example,), ascending and evenly spread.

    Args:
        prepared: The prepared folder.
        split: `train`, `validation` or `test`.
        target: The targets of the split's examples, in the form for metrics.
        task: Of a ranking whole groups are taken: a metric of a part of a group is that of another list.
        limit: Examples.
    """
    positions = weighing_examples(prepared, split, len(target))
    units = UNITS[task](target[positions])
    num = int(units.max(initial=-1)) + 1
    chosen = spread_positions(num, max(1, num * limit // max(limit, len(positions)))) if num else units
    return positions[np.isin(units, chosen)]


def _examples_apart(target: np.ndarray) -> np.ndarray:
    return np.arange(len(target))


UNITS: PerTask[Callable[[np.ndarray], np.ndarray]] = {
    "binary": _examples_apart,
    "multiclass": _examples_apart,
    "multilabel": _examples_apart,
    "regression": _examples_apart,
    "quantile": _examples_apart,
    "language": _examples_apart,
    "ranking": groups_of,
}
"""The number of the unit of each example that no sample divides, from 0 on: int64 (example,)."""
