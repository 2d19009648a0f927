"""Paired bootstrap: the uncertainty of a difference between models on the same examples.

Every resample weights the examples alike for every model, so that effects of hard examples common to all cancel out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from models.errors import UsageError
from models.metrics.evaluator import Array, Evaluator

LEAST_DEFINED = 0.9
"""Share of the resamples on which a metric must be defined; with fewer there is no interval."""


def resample(
    evaluators: Sequence[Evaluator],
    num_examples: int,
    resamples: int,
    seed: int = 0,
    clusters: Array | None = None,
) -> Array:
    """Return each model's metric on each resample, shape (resample, model).

    Args:
        evaluators: One for each model, of the same examples.
        num_examples: Number of examples.
        resamples: Number of resamples.
        seed: Same seed, same resamples, on every platform and numpy version.
        clusters: Cluster numbers (example,) from 0 on: examples of one cluster (a group, a block of time) are
            not independent and are drawn together. None: each example by itself.

    Source: Efron and Tibshirani (1993), An Introduction to the Bootstrap, ch. 6; clusters: Davison and
    Hinkley (1997), Bootstrap Methods and their Application, 3.8.

    Cost: resamples x models x examples; memory: a few arrays of the examples' length.
    """
    values = np.empty((resamples, len(evaluators)))
    for row, weight in enumerate(draws(num_examples, resamples, seed, clusters)):
        values[row] = [each(weight) for each in evaluators]
    return values


def draws(num_examples: int, resamples: int, seed: int = 0, clusters: Array | None = None) -> Iterator[Array]:
    """Yield for each resample how often each example is drawn: float64 whole numbers (example,)."""
    if clusters is not None and len(clusters) != num_examples:
        raise UsageError(f"clusters: got {len(clusters)} entries, expected one for each of {num_examples} examples")
    units = num_examples if clusters is None else int(clusters.max()) + 1
    source = np.random.PCG64(seed)
    for _ in range(resamples):
        # numpy guarantees that the raw stream never changes; multiply and shift maps it to 0 .. units - 1.
        raw = np.asarray(source.random_raw((units + 1) // 2), dtype="<u8").view("<u4")[:units]
        drawn = (raw.astype(np.uint64) * np.uint64(units)) >> np.uint64(32)
        count = np.bincount(drawn.view(np.int64), minlength=units).astype(np.float64)
        yield count if clusters is None else count[clusters]


def percentile_interval(values: Array, confidence: float) -> tuple[float, float] | None:
    """Return the interval of the middle `confidence` of the resampled values; None if too many are undefined."""
    defined = values[np.isfinite(values)]
    if not len(defined) or len(defined) < LEAST_DEFINED * len(values):
        return None
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def p_value(gains: Array, threshold: float, at_threshold: bool) -> float | None:
    """Return the p-value against "the gain does not reach `threshold`"; None if too many gains are undefined.

    It is twice the one-sided share, so that p < 1 - confidence agrees with the two-sided interval.

    Args:
        gains: Resampled gains, more is better.
        threshold: The gain to exceed.
        at_threshold: A gain equal to `threshold` suffices.

    Source: Davison and Hinkley (1997), Bootstrap Methods and their Application, 4.2: (1 + k) / (1 + R).
    """
    defined = gains[np.isfinite(gains)]
    if not len(defined) or len(defined) < LEAST_DEFINED * len(gains):
        return None
    # Sums in another order differ in the last bits, but equal models must count as equal.
    slack = 1e-12 * max(1.0, float(np.abs(defined).max()))
    missed = defined < threshold - slack if at_threshold else defined <= threshold + slack
    return float(min(1.0, 2 * (1 + missed.sum()) / (1 + len(defined))))


def time_blocks(num_examples: int, length: int) -> Array:
    """Return clusters of `length` adjacent examples, for examples in time order with dependent errors.

    Source: Carlstein (1986), Annals of Statistics 14, non-overlapping blocks.
    """
    return np.arange(num_examples) // max(1, length)
