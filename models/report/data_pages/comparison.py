"""Two versions of the data side by side: columns that came and went, how far values moved, rows that both have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from models.validation.data_profile import Categories, ColumnProfile, DataProfile, Histogram, IdSketch

MOST_BINS = 64
FURTHER_THAN_CHANCE = 2.0
"""So many times what chance alone moves is a change."""
LEAST_MOVED = 0.05
"""A smaller move is none that a person must look at."""


@dataclass(frozen=True)
class Shares:
    """The shares of the rows in the same cells of both versions.

    `labels` names each cell: where a bin begins, or the category.
    """

    labels: list[str | float]
    before: list[float]
    after: list[float]


@dataclass(frozen=True)
class ColumnChange:
    """A column in two versions; None where it is in one of them alone.

    Attributes:
        shares: How values are spread in both; None: they cannot be compared.
        moved: The share of the rows that would have to lie in another cell for both to be alike; 0 to 1.
        chance: What chance alone moves in rows as many as these.
    """

    name: str
    before: ColumnProfile | None
    after: ColumnProfile | None
    shares: Shares | None = None
    moved: float = 0.0
    chance: float = 0.0

    @property
    def has_moved(self) -> bool:
        """Whether values moved further than chance alone would move them."""
        return self.moved >= max(LEAST_MOVED, FURTHER_THAN_CHANCE * self.chance)

    @property
    def differences(self) -> list[str]:
        """What else has changed, in words."""
        if self.before is None or self.after is None:
            return ["went" if self.before else "came"]
        pairs = {"type": "dtype", "kind": "kind", "role": "role"}
        texts = {name: (getattr(self.before, field), getattr(self.after, field)) for name, field in pairs.items()}
        return [f"{name}: {before} → {after}" for name, (before, after) in texts.items() if before != after]


@dataclass(frozen=True)
class RowChange:
    """Rows of two versions by their hashes; of large tables the numbers are estimated."""

    num_new: int
    num_gone: int
    num_same: int
    is_by_id: bool
    is_exact: bool


@dataclass(frozen=True)
class DataComparison:
    """What differs between two versions: changed columns first, those that moved furthest before others."""

    columns: list[ColumnChange]
    rows: RowChange | None


def compare(before: DataProfile, after: DataProfile) -> DataComparison:
    """Return what differs between two versions of the data."""
    old, new = ({column.name: column for column in profile.columns} for profile in (before, after))
    changes = [_change(name, old.get(name), new.get(name)) for name in dict.fromkeys([*new, *old])]
    changes.sort(key=lambda change: (not change.differences, not change.has_moved, -change.moved))
    rows = row_change(before.ids, after.ids) if before.ids and after.ids else None
    return DataComparison(changes, rows)


def row_change(before: IdSketch, after: IdSketch) -> RowChange | None:
    """Return how many rows came, went and stayed; None: one version names its rows by ids, the other does not.

    From the least hashes of both, the share of those that both have estimates that of all rows.

    Source: Bar-Yossef et al. (2002), Counting distinct elements in a data stream.
    """
    if before.is_by_id != after.is_by_id:
        return None
    old, new = {*before.hashes}, {*after.hashes}
    is_exact = before.num_rows == len(old) and after.num_rows == len(new)
    if is_exact:
        num_same = len(old & new)
    else:
        sizes = [len(sketch.hashes) for sketch in (before, after) if sketch.num_rows > len(sketch.hashes)]
        hashes = sorted(old | new)[: min(sizes)]
        share = sum(value in old and value in new for value in hashes) / max(1, len(hashes))
        num_same = round(share * (before.num_rows + after.num_rows) / (1 + share))
    num_same = min(num_same, before.num_rows, after.num_rows)
    return RowChange(after.num_rows - num_same, before.num_rows - num_same, num_same, before.is_by_id, is_exact)


def in_same_bins(before: Histogram, after: Histogram) -> Shares:
    """Return both histograms in the same bins: bins of a power of two fit into each other."""
    width, bins = max(before.width, after.width), (0, 0)
    while True:
        ends = [_range(histogram, width) for histogram in (before, after)]
        bins = min(first for first, _ in ends), max(last for _, last in ends)
        if bins[1] - bins[0] < MOST_BINS:
            break
        width *= 2
    labels = [place * width for place in range(bins[0], bins[1] + 1)]
    counts = [_rebinned(histogram, width, bins) for histogram in (before, after)]
    return Shares([*labels], *(_shares(numbers) for numbers in counts))


def in_same_categories(before: Categories, after: Categories) -> Shares:
    """Return both in the same categories; one that a version does not name counts as absent from it."""
    names = list(dict.fromkeys([*after.names, *before.names]))
    counts = []
    for categories in (before, after):
        totals = [sum(place) for place in zip(*categories.counts, strict=True)]
        by_name = dict(zip(categories.names, totals, strict=False))
        counts.append([*(by_name.get(name, 0) for name in names), totals[-1]])
    has_others = any(numbers[-1] for numbers in counts)
    labels = [*names, "others"] if has_others else names
    return Shares([*labels], *(_shares(numbers[: len(labels)]) for numbers in counts))


def _change(name: str, before: ColumnProfile | None, after: ColumnProfile | None) -> ColumnChange:
    if before is None or after is None:
        return ColumnChange(name, before, after)
    shares = None
    if before.histogram and after.histogram and before.unit == after.unit:
        shares = in_same_bins(before.histogram, after.histogram)
    elif before.categories and after.categories:
        shares = in_same_categories(before.categories, after.categories)
    if shares is None:
        return ColumnChange(name, before, after)
    sizes = [_num_values(column) for column in (before, after)]
    moved = sum(abs(old - new) for old, new in zip(shares.before, shares.after, strict=True)) / 2
    return ColumnChange(name, before, after, shares, moved, _moved_by_chance(shares, *sizes))


def _num_values(column: ColumnProfile) -> int:
    counted = column.histogram or column.categories
    return sum(map(sum, counted.counts)) if counted else 0


def _moved_by_chance(shares: Shares, num_before: int, num_after: int) -> float:
    """Return the mean of `moved` for two samples of one distribution, by the normal approximation of each cell."""
    if not num_before or not num_after:
        return 1.0
    cells = zip(shares.before, shares.after, strict=True)
    pooled = [(old * num_before + new * num_after) / (num_before + num_after) for old, new in cells]
    deviations = (math.sqrt(share * (1 - share) * (1 / num_before + 1 / num_after)) for share in pooled)
    return sum(deviations) / 2 * math.sqrt(2 / math.pi)


def _range(histogram: Histogram, width: float) -> tuple[int, int]:
    """Return the numbers of the first and the last bin of a width that a histogram reaches."""
    num_bins = len(histogram.counts[0]) - 2
    last = histogram.first + num_bins - 1
    factor = histogram.width / width
    return math.floor(histogram.first * factor), math.floor(last * factor)


def _rebinned(histogram: Histogram, width: float, bins: tuple[int, int]) -> list[int]:
    """Return the counts over all groups in wider bins; what lies beyond the bins counts in the nearest of its own."""
    totals = [sum(place) for place in zip(*histogram.counts, strict=True)]
    totals = [totals[0] + totals[1], *totals[2:-2], totals[-2] + totals[-1]] if len(totals) > 3 else [sum(totals)]
    counts = [0] * (bins[1] - bins[0] + 1)
    for place, count in enumerate(totals):
        counts[math.floor((histogram.first + place) * histogram.width / width) - bins[0]] += count
    return counts


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts) or 1
    return [count / total for count in counts]
