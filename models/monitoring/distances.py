"""Distances of two distributions, from counts over the same bins alone.

Legend: `reference` and `now` are counts (cell,) of the training values and of the window's. PSI, Jensen-Shannon and G
are computed over a few groups of bins (`group`): over 256 bins of 1,000 values PSI is .26 where nothing changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
NUM_GROUPS = 10


def group_numeric(reference: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the group (bin,) of each bin: up to ten groups of adjacent bins with about equal weight in training.

    A column that was constant has three groups: below the constant, the constant, and above it.

    Source: ten groups of equal weight, Siddiqi (2006), Credit Risk Scorecards, from where PSI's usual limits come.
    """
    total = reference.sum()
    if not total:
        return np.zeros(len(reference), dtype=np.int64)
    middle = (np.cumsum(reference) - reference / 2) / total
    cells = np.minimum((middle * NUM_GROUPS).astype(np.int64), NUM_GROUPS - 1)
    filled_cells = np.flatnonzero(reference)
    if len(filled_cells) == 1:
        return np.asarray(np.sign(np.arange(len(reference)) - filled_cells[0]) + 1)
    filled = np.unique(cells[filled_cells])
    return np.asarray(np.searchsorted(filled, cells).clip(max=len(filled) - 1))


def group_categorical(reference: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the group (category,): one for each of the nine most frequent, one for all others and unseen ones."""
    order = np.argsort(-reference, kind="stable")
    groups = np.full(len(reference), NUM_GROUPS - 1, dtype=np.int64)
    groups[order[: NUM_GROUPS - 1]] = np.arange(min(NUM_GROUPS - 1, len(reference)))
    return groups


def grouped(counts: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the counts of each group."""
    return np.bincount(groups, weights=counts, minlength=int(groups.max(initial=0)) + 1).astype(np.int64)


def psi(reference: NDArray[np.int64], now: NDArray[np.int64]) -> float:
    """Return the population stability index: the symmetrised Kullback-Leibler divergence, in nats.

    Half a value is added to each cell, so that an empty cell does not make it infinite.

    Source: Jeffreys (1946), Proc. R. Soc. A 186; as PSI in Siddiqi (2006), Credit Risk Scorecards.
    """
    before, after = _smoothed(reference), _smoothed(now)
    return float((after - before) @ np.log(after / before))


def jensen_shannon(reference: NDArray[np.int64], now: NDArray[np.int64]) -> float:
    """Return the Jensen-Shannon distance, 0 to 1.

    Source: Endres and Schindelin (2003), IEEE Trans. Inf. Theory 49: the root of the divergence is a metric.
    """
    from scipy.special import rel_entr

    before, after = _shares(reference), _shares(now)
    middle = (before + after) / 2
    divergence = (rel_entr(before, middle) + rel_entr(after, middle)).sum() / np.log(4)
    return float(np.sqrt(np.clip(divergence, 0.0, 1.0)))


def kolmogorov_smirnov(reference: NDArray[np.int64], now: NDArray[np.int64]) -> float:
    """Return the largest gap between the distribution functions at the bins' edges.

    It is smaller than the exact value by at most the weight of one bin.
    """
    return float(np.abs(np.cumsum(_shares(reference)) - np.cumsum(_shares(now))).max(initial=0.0))


def wasserstein(
    reference: NDArray[np.int64], now: NDArray[np.int64], edges: Sequence[float], low: float, high: float
) -> float:
    """Return the area between the distribution functions, in the column's own unit: how far values moved on average.

    Values outside low to high count as low or high.
    """
    if high <= low:
        return 0.0
    gaps = np.abs(np.cumsum(_shares(reference)) - np.cumsum(_shares(now)))[:-1]
    points = np.clip(np.r_[low, edges, high], low, high)
    heights = np.r_[0.0, gaps, 0.0]
    return float(np.diff(points) @ (heights[1:] + heights[:-1]) / 2)


def g_test(reference: NDArray[np.int64], now: NDArray[np.int64]) -> tuple[float, float]:
    """Return the G statistic of two rows of counts, and the p-value for the hypothesis of a common distribution.

    Source: Sokal and Rohlf (1981), Biometry, 17.4, with Williams' (1976) correction for small samples.
    """
    from scipy.special import chdtrc, rel_entr

    table = np.stack([reference, now]).astype(np.float64)
    table = table[:, table.sum(axis=0) > 0]
    rows, columns, total = table.sum(axis=1), table.sum(axis=0), table.sum()
    freedom = table.shape[1] - 1
    if freedom < 1 or not rows.all():
        return 0.0, 1.0
    divergence = rel_entr(table, np.outer(rows, columns) / total).sum()
    williams = 1 + (total * (1 / rows).sum() - 1) * (total * (1 / columns).sum() - 1) / (6 * total * freedom)
    statistic = max(0.0, 2 * float(divergence) / williams)
    return statistic, float(chdtrc(freedom, statistic))


def shares_differ(part: int, whole: int, part_before: int, whole_before: int) -> float:
    """Return the p-value for the hypothesis that two shares (e.g. of missing values) are equal.

    The test is the pooled two-sample z-test.

    Source: Fleiss, Levin and Paik (2003), Statistical Methods for Rates and Proportions, 3.1.
    """
    from scipy.special import ndtr

    if not whole or not whole_before:
        return 1.0
    pooled = (part + part_before) / (whole + whole_before)
    variance = pooled * (1 - pooled) * (1 / whole + 1 / whole_before)
    if variance <= 0:
        return 1.0
    return float(2 * ndtr(-abs(part / whole - part_before / whole_before) / np.sqrt(variance)))


def _shares(counts: NDArray[np.int64]) -> Array:
    total = counts.sum()
    return counts / total if total else np.full(len(counts), 1 / max(1, len(counts)))


def _smoothed(counts: NDArray[np.int64]) -> Array:
    return np.asarray((counts + 0.5) / (counts.sum() + 0.5 * len(counts)))
