"""Changes of the correlation between columns: rank correlations from the Gram matrices of `tally.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from models.metrics.holm import holm
from models.monitoring.report import Correlation

Array = NDArray[np.float64]
LEAST_DIFFERENCE = 0.1
"""Smaller changes of a correlation are not reported, even if significant: Cohen (1988) calls a q of .1 small."""
SHOWN = 5
_FIELLER = 1.06


def changes(reference: Array, now: Array, names: Sequence[str], alpha: float) -> list[Correlation]:
    """Return pairs of columns whose correlation changed, largest change first, then a few unchanged pairs.

    Source: Fisher's z of rank correlations with variance 1.06 / (n - 3), Fieller, Hartley and Pearson (1957),
    Biometrika 44; Holm over the pairs.
    """
    pairs = list(_pairs(reference, now))
    if not pairs:
        return []
    corrected = holm([p_value for *_, p_value in pairs])
    correlations = [
        Correlation(
            first=names[row],
            second=names[column],
            reference=before,
            now=after,
            p_holm=p_holm,
            changed=p_holm is not None and p_holm < alpha and abs(after - before) >= LEAST_DIFFERENCE,
        )
        for (row, column, before, after, _), p_holm in zip(pairs, corrected, strict=True)
    ]
    correlations.sort(key=lambda correlation: (not correlation.changed, -abs(correlation.now - correlation.reference)))
    return correlations[: sum(correlation.changed for correlation in correlations) + SHOWN]


def _pairs(reference: Array, now: Array) -> Iterator[tuple[int, int, float, float, float]]:
    from scipy.special import ndtr

    sizes = reference[0, 0], now[0, 0]
    if min(sizes) < 10:
        return
    before, after = _correlations(reference), _correlations(now)
    spread = np.sqrt(sum(_FIELLER / (size - 3) for size in sizes))
    for row, column in zip(*np.triu_indices(len(before), 1), strict=True):
        pair = float(before[row, column]), float(after[row, column])
        if not np.isfinite(pair).all():
            continue  # a constant column has no correlation
        z = (np.arctanh(np.clip(pair[1], -0.999, 0.999)) - np.arctanh(np.clip(pair[0], -0.999, 0.999))) / spread
        yield int(row), int(column), *pair, float(2 * ndtr(-abs(z)))


def _correlations(sums: Array) -> Array:
    size, means = sums[0, 0], sums[0, 1:] / sums[0, 0]
    covariance = sums[1:, 1:] / size - np.outer(means, means)
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    spread = np.where(spread > 1e-3, spread, np.nan)
    return np.asarray(np.clip(covariance / np.outer(spread, spread), -1.0, 1.0))
