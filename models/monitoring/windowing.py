"""Windows of predictions: a fixed number of successive predictions of one version, counted by hour.

Windows follow the order of the log, not of the times. If a clock goes back, a window begins earlier, but no
prediction is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from models.identity.hashing import SortedHashSet
from models.kinds.task import Task
from models.monitoring.examples import KeyedPredictions, Keys, keys_of, sampled
from models.monitoring.reference import Reference
from models.monitoring.tally import Bounds, PredictionCounts, predictions_of, tally

HOUR_S = 3600
REMEMBERED = 1_000_000
"""Number of a version's newest predictions whose repetition is detected, also in later monitoring runs."""


@dataclass(frozen=True)
class WindowingRules:
    """The rules for counting the predictions of a version.

    Attributes:
        task: None for an unknown version: its rows are counted, their values are not.
        reference: None for a version from before references existed: no columns are counted.
        bounds: Allowed ranges of numeric columns.
    """

    task: Task | None = None
    reference: Reference | None = None
    bounds: Bounds | None = None


@dataclass
class OpenWindow:
    """A window of one version.

    Attributes:
        first: Number of the version's predictions before this window.
        size: Number of predictions in a complete window.
        begin, end: Unix time of the first and the last prediction, seconds.
        hours: Hours since 1970 -> counts of the predictions made in it.
        keys: Keys of its newest predictions, at least a million, for the detection of repetitions.
        examples: The single predictions, for the labels.
    """

    first: int
    size: int
    begin: float = float("inf")
    end: float = float("-inf")
    hours: dict[int, PredictionCounts] = field(default_factory=dict)
    keys: list[Keys] = field(default_factory=list)
    examples: KeyedPredictions = field(default_factory=KeyedPredictions.empty)

    @property
    def num_rows(self) -> int:
        """Number of predictions so far."""
        return sum(part.num_rows for part in self.hours.values())

    @property
    def is_whole(self) -> bool:
        """True when the window is complete."""
        return self.num_rows >= self.size

    @property
    def tally(self) -> PredictionCounts:
        """The counts of all hours together."""
        return sum(self.hours.values(), PredictionCounts())


def fill(
    window: OpenWindow,
    table: pa.Table,
    seen: SortedHashSet,
    size: int,
    rules: WindowingRules,
) -> Iterator[OpenWindow]:
    """Count the rows of one version into its last window and new ones; yields each changed window, in order.

    Args:
        window: The version's last window.
        table: `id`, `at`, and the columns that `tally` reads; rows in the order of the log.
        seen: Hashes of the version's earlier predictions; rows that are among them are ignored.
        size: Predictions in each further window.
        rules: The rules for counting.
    """
    keys = keys_of(table.column("id"))
    fresh = seen.new(keys)
    rows, keys = (table, keys) if fresh.all() else (table.filter(pa.array(fresh)), keys[fresh])
    start = 0
    while start < rows.num_rows:
        if window.is_whole:
            window = OpenWindow(window.first + window.num_rows, size)
        stop = min(rows.num_rows, start + window.size - window.num_rows)
        _take(window, rows.slice(start, stop - start), keys[start:stop], rules)
        start = stop
        yield window


def _take(window: OpenWindow, rows: pa.Table, keys: Keys, rules: WindowingRules) -> None:
    seconds = rows.column("at").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy() / 1e6
    window.begin, window.end = min(window.begin, float(seconds.min())), max(window.end, float(seconds.max()))
    window.keys.append(keys)
    while sum(map(len, window.keys[1:])) >= REMEMBERED:
        del window.keys[0]
    for hour, part in _by_hour(rows, seconds):
        counted = tally(part, rules.reference, rules.bounds) if rules.reference else PredictionCounts(part.num_rows)
        window.hours[hour] = window.hours.get(hour, PredictionCounts()) + counted
    if rules.task is not None:
        sample = sampled(keys, window.size)
        window.examples = window.examples.with_more(keys[sample], predictions_of(rows, rules.task)[sample])


def _by_hour(rows: pa.Table, seconds: NDArray[np.float64]) -> Iterator[tuple[int, pa.Table]]:
    hours = (seconds // HOUR_S).astype(np.int64)
    if hours.min() == hours.max():
        yield int(hours[0]), rows
        return
    for hour in np.unique(hours):
        yield int(hour), rows.filter(pa.array(hours == hour))
