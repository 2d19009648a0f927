"""The trivial baseline and the clusters of dependent examples that a verdict needs from the held-out rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from models.data import feeds, text
from models.data.encode import rows_of
from models.data.hashing import Hashes
from models.data.preparation import Preparation
from models.judge.baseline import Baseline, naive_forecast, trivial_baseline, unigram
from models.metrics.bootstrap import time_blocks
from models.metrics.metrics import Array
from models.project_spec.blocks import Split
from models.project_spec.reserved_columns import IDENTITY_COLUMN
from models.sources.code_points import code_points

MOST_KNOWN = 1 << 20


def baseline_of(prepared: Path, preparation: Preparation, num_examples: int, metric: str) -> Baseline:
    """Return the trivial baseline: a series' last known value, a text's character shares, else `trivial_baseline`."""
    if preparation.characters is not None:
        training = code_points(text.text_of(prepared, "train", preparation.characters))
        return unigram(training, feeds.targets(prepared, "test"))
    if preparation.window is not None:
        series, rows = feeds.series_targets(prepared, "test")
        middle = float(feeds.targets(prepared, "train").mean())
        return naive_forecast(series, rows, preparation.window.horizon, middle)
    num_classes = len(preparation.target.classes or ()) or 2
    return trivial_baseline(preparation.task, feeds.targets(prepared, "train"), num_examples, num_classes, metric)


def known_rows(prepared: Path, preparation: Preparation) -> Hashes:
    """Return the identities of the rows that a model was trained or selected on; they are stored with its version.

    uint64 (row,), sorted; for more than a million rows the smallest, as a sample. Empty for a text.
    """
    if preparation.characters is not None:
        return np.zeros(0, dtype=np.uint64)
    sides = [_identities(prepared, side) for side in ("train", "validation")]
    return np.sort(np.concatenate(sides))[:MOST_KNOWN]


def is_known(prepared: Path, known: Hashes) -> np.ndarray:
    """Return which test examples are among the known rows of another model, bool (example,)."""
    identities = _identities(prepared, "test")
    mask: np.ndarray = np.isin(identities, known)
    return mask


def _identities(prepared: Path, split: str) -> Hashes:
    identities: Hashes = rows_of(prepared, split, [IDENTITY_COLUMN]).column(0).to_numpy()
    return identities


def clusters_of(prepared: Path, preparation: Preparation, split: Split, num_examples: int) -> Array | None:
    """Return the clusters of dependent test examples: blocks of a series or a text, groups of a split by group."""
    if preparation.window is not None or preparation.characters is not None:
        horizon = preparation.window.horizon if preparation.window else 1
        return time_blocks(num_examples, max(horizon, round(num_examples ** (1 / 3))))
    if split.by == "group" and split.column:
        return np.asarray(np.unique(feeds.groups(prepared, "test"), return_inverse=True)[1])
    return None
