"""Comparison of an exported model's variants: size, latency and metric loss of each, and which one is served."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from models.metrics.bootstrap import resample
from models.metrics.metrics import Array, Metric, measure

SAME = 1e-6
"""Predictions within this distance are equal: single precision may differ so much when sums change their order."""
RESAMPLES = 100
CONFIDENCE = 0.95
FEWEST_ROWS = 200
"""On fewer rows a real loss may not show, so by default only the same predictions are served."""
MOST_SLOWER = 1.05
"""Latency over that of fp32 beyond which a variant is slower: smaller differences come and go between runs."""


class VariantMeasurement(BaseModel):
    """The measurements of one variant. A value that could not be measured is None, and `refused` says why."""

    model_config = ConfigDict(frozen=True)

    name: str
    size_bytes: int | None = None
    latency_ms: float | None = Field(None, description="One row, one thread, p50.")
    times_fp32: float | None = Field(
        None, description="Latency over that of fp32, at least: lower end of the one-sided 95 % interval of the median."
    )
    value: float | None = Field(None, description="The goal's metric on validation rows.")
    loss: float | None = Field(None, description="How much worse than fp32; below zero: better.")
    most_lost: float | None = Field(None, description="Upper end of the loss' one-sided 95 % interval.")
    refused: str = Field("", description="Why it may not be served; empty: it may.")
    served: bool = False


def loss_of(
    metric: Metric, target: Array, before: Array, after: Array, seed: int, weight: Array | None = None
) -> tuple[float, float]:
    """Return the metric loss of the predictions `after` against those `before`, and its one-sided 95 % upper bound.

    Both are 0 if the predictions are equal. Undefined resamples are ignored.

    Raises:
        DataError: The metric is undefined on these rows.

    Cost: 100 resamples of both models.
    """
    loss = metric.sign * (measure(metric, target, before, weight) - measure(metric, target, after, weight))
    if are_same(before, after):
        return 0.0, 0.0
    pair = [metric.weighted(target, scores, weight) for scores in (before, after)]
    values = resample(pair, len(target), RESAMPLES, seed, metric.units(target))
    lost = metric.sign * (values[:, 0] - values[:, 1])
    lost = lost[~np.isnan(lost)]
    return loss, max(loss, float(np.quantile(lost, CONFIDENCE))) if len(lost) else loss


def allowed_loss(
    metric: Metric, target: Array, before: Array, limit: float | None, seed: int, weight: Array | None = None
) -> float:
    """Return what a variant may lose: the spec's limit, or half of the standard error of fp32's metric on these rows.

    Without a limit it is 0 for fewer than `FEWEST_ROWS` rows, and where the metric is undefined on resamples.

    Cost: 100 resamples.
    """
    if limit is not None or len(target) < FEWEST_ROWS:
        return limit or 0.0
    values = resample([metric.weighted(target, before, weight)], len(target), RESAMPLES, seed, metric.units(target))
    error = float(np.std(values, ddof=1))
    return error / 2 if np.isfinite(error) else 0.0


def are_same(before: Array, after: Array) -> bool:
    """Return True if predictions differ by no more than rounding."""
    return before.shape == after.shape and bool(np.allclose(after, before, rtol=SAME, atol=SAME))


def refusal(variant: VariantMeasurement, same: bool, allowed: float, max_latency_ms: float | None) -> str:
    """Return the reason why a variant may not be served; an empty string if it may.

    Args:
        variant: Its measurements.
        same: Whether its predictions are equal to those of fp32.
        allowed: What it may lose; 0 requires equal predictions, because on few rows a real loss may not show.
        max_latency_ms: The spec's limit.
    """
    if variant.refused:
        return variant.refused
    assert variant.most_lost is not None
    assert variant.latency_ms is not None
    if allowed == 0 and not same:
        return "its predictions are not those of fp32, and nothing may be lost (serve.max_metric_loss)"
    if variant.most_lost > allowed:
        return f"may lose {variant.most_lost:.3g}, {allowed:.3g} is allowed (serve.max_metric_loss)"
    if variant.times_fp32 is not None and variant.times_fp32 > MOST_SLOWER:
        return f"takes {variant.times_fp32:.2f} times as long as fp32"
    if max_latency_ms is not None and variant.latency_ms > max_latency_ms:
        return f"takes {variant.latency_ms:.3g} ms, serve.max_latency_ms is {max_latency_ms:g}"
    return ""


def choose(table: Sequence[VariantMeasurement]) -> list[VariantMeasurement]:
    """Mark the smallest variant that may be served; fp32, the first, if no other may or all are of equal size.

    Latency counts only through refusals: which of two fast variants is faster may change with the load of the machine.
    """
    fitting = [variant for variant in table if not variant.refused and variant.size_bytes is not None]
    best = min(fitting, key=lambda variant: variant.size_bytes or 0, default=table[0])
    return [variant.model_copy(update={"served": variant is best}) for variant in table]
