"""The background rows of explanations: a few training rows, stored with the version."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from models.data.feeds import feed_at, spread_positions
from models.data.preparation import Preparation
from models.data.weights import weighing_examples
from models.export.signature import input_example
from models.files import write_text
from models.inference.names import BACKGROUND_FILE
from models.kinds.data_kind import DATA_KINDS
from models.readable import as_shown
from models.validation.data_profile import FEWEST_ALIKE

BACKGROUND_ROWS = 16
HIDDEN_AMONG = 4 * FEWEST_ALIKE * BACKGROUND_ROWS
"""Training rows of which the background of a spec that shows no rows is made."""
Array = np.ndarray[Any, np.dtype[Any]]


def write_background(folder: Path, prepared: Path, preparation: Preparation, *, shows_rows: bool) -> Path | None:
    """Write `background.json` into a folder; None for images and texts, which are not explained by column.

    Where the spec shows no rows none is a row of the data: each column's values are apart from those of the others, a
    number is the mean of at least ten rows, and a text is one that at least ten rows have.
    """
    if not DATA_KINDS[preparation.kind].has_columns:
        return None
    counted = weighing_examples(prepared, "train", preparation.rows["train"])
    num_read = as_shown(BACKGROUND_ROWS, shows_rows, lambda _: HIDDEN_AMONG)
    positions = counted[spread_positions(len(counted), num_read)]
    feed = as_shown(feed_at(prepared, "train", preparation, positions), shows_rows, _of_many_rows)
    size = min(len(positions), BACKGROUND_ROWS)
    path = folder / BACKGROUND_FILE
    write_text(path, json.dumps(input_example(feed, size)) + "\n")
    return path


def _of_many_rows(feed: dict[str, Array]) -> dict[str, Array]:
    """Return background rows without a row, and without a value of fewer than `FEWEST_ALIKE` rows."""
    rng = np.random.default_rng(0)
    return {
        name: rng.permutation(_texts(values) if values.dtype.kind in "OU" else _means(values))
        for name, values in feed.items()
    }


def _texts(values: Array) -> Array:
    """Return texts (row,) in their shares; one that few rows have gives its place to the most frequent, or to none."""
    counts = Counter(values.tolist())
    often = {text: count for text, count in counts.items() if count >= FEWEST_ALIKE} or {"": 1}
    spread = np.repeat(np.array(list(often), object), list(often.values()))
    return spread[_spread(len(spread))]


def _means(values: Array) -> Array:
    """Return means (row, ...) of as many equal parts of the sorted values; NaN for a part with too few of them."""
    parts = np.array_split(np.sort(values, axis=0), max(1, min(BACKGROUND_ROWS, len(values) // FEWEST_ALIKE)))
    present = [np.isfinite(part).sum(axis=0) for part in parts]
    sums = [np.where(np.isfinite(part), part, 0).sum(axis=0) for part in parts]
    means = np.array([
        np.where(count >= FEWEST_ALIKE, total / np.maximum(count, 1), np.nan)
        for total, count in zip(sums, present, strict=True)
    ])  # fmt: skip
    return means[_spread(len(means))].astype(values.dtype)


def _spread(size: int) -> Array:
    """Return `BACKGROUND_ROWS` positions among `size`, spread evenly; some twice where there are fewer."""
    return np.arange(BACKGROUND_ROWS) * size // BACKGROUND_ROWS
