"""Paired bootstrap: the uncertainty of a difference between models on the same examples.

Every resample weights the examples alike for every model, so that effects of hard examples common to all cancel out.
"""

from __future__ import annotations

import math
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
        values[row] = [evaluator(weight) for evaluator in evaluators]
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


def few_units_factor(num_units: float, confidence: float) -> float:
    """Return the factor that widens resampled differences when few independent units were resampled.

    The bootstrap's standard error is too small by sqrt((n - 1) / n), and its quantiles are those of the normal and not
    of the t distribution.

    Source: Hesterberg (2015), The American Statistician 69(4), expanded percentile interval.
    """
    from scipy.special import ndtri, stdtrit

    if num_units < 2:
        return 1.0
    level = (1 + confidence) / 2
    return float(stdtrit(num_units - 1, level) / ndtri(level) * math.sqrt(num_units / (num_units - 1)))


def time_blocks(num_examples: int, length: int) -> Array:
    """Return clusters of at least `length` adjacent examples, for examples in time order with dependent errors.

    Source: Carlstein (1986), Annals of Statistics 14, non-overlapping blocks.
    """
    num_blocks = max(1, num_examples // max(1, length))
    return np.arange(num_examples) * num_blocks // max(1, num_examples)


def block_length(values: Array) -> int:
    """Return the block length that the dependence of a series (step,) needs; 1 if no dependence shows.

    It is twice the length with the least squared error of the variance: a test suffers more from bias than from noise
    (tests/unit/models/judge/test_held_out.py states the rates). The bandwidth may reach a quarter of the series.

    Source: Politis and White (2004), Econometric Reviews 23(1); corrected in Patton, Politis and White (2009), 28(4).

    Cost: a Fourier transform.
    """
    num = len(values)
    centred = np.asarray(values, dtype=np.float64) - np.mean(values)
    if num < 8 or float(np.abs(centred).max()) <= 1e-12 * float(np.abs(values).max()):
        return 1
    spectrum = np.fft.rfft(centred, 2 * num)
    covariance = np.fft.irfft(spectrum * spectrum.conj())[:num] / num
    quiet = max(5, math.ceil(math.sqrt(math.log10(num))))
    large = np.abs(covariance[1:] / covariance[0]) >= 2 * math.sqrt(math.log10(num) / num)
    silences = np.flatnonzero(np.convolve(large, np.ones(quiet, dtype=np.int64), "valid") == 0)
    bandwidth = min(max(1, 2 * int(silences[0])) if len(silences) else num, num // 4)
    lags = np.arange(1, bandwidth + 1)
    weighted = np.clip(2 * (1 - lags / (bandwidth + 1)), 0, 1) * covariance[1 : bandwidth + 1]
    spread, slope = covariance[0] + 2 * weighted.sum(), 2 * (lags * weighted).sum()
    if spread <= 0:
        return 1
    return max(1, math.ceil(2 * float(np.cbrt(1.5 * num * (slope / spread) ** 2))))
