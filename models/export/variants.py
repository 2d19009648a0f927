"""The variants of an exported model side by side: what each costs and loses, and which one is served."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from models.metrics.bootstrap import resample
from models.metrics.metrics import Array, Metric, measure
from models.metrics.resampling import evaluator

SAME = 1e-6
"""Predictions no further apart than this are the same: what single precision may differ by when sums change order."""
RESAMPLES = 100
CONFIDENCE = 0.95


class VariantMeasurement(BaseModel):
    """Measurements of one variant. What could not be measured is None, and `refused` holds the reason."""

    model_config = ConfigDict(frozen=True)

    name: str
    how: str = Field("", description="What was done, where the name does not tell.")
    size_bytes: int | None = None
    latency_ms: float | None = Field(None, description="One row, one thread, p50.")
    value: float | None = Field(None, description="The goal's metric on validation rows.")
    loss: float | None = Field(None, description="How much worse than fp32; below zero: better.")
    most_lost: float | None = Field(None, description="Upper end of the loss' one-sided 95 % interval.")
    refused: str = Field("", description="Why it may not be served; empty: it may.")
    served: bool = False


def loss_of(metric: Metric, target: Array, before: Array, after: Array, seed: int) -> tuple[float, float]:
    """The loss of the metric from predictions `before` to `after`, and its upper bound (one-sided, 95 %).

    Both are 0 for equal predictions. Undefined resamples are skipped.

    Raises:
        DataError: The metric is undefined on these rows.

    Cost: 100 resamples of both models.
    """
    loss = metric.sign * (measure(metric, target, before) - measure(metric, target, after))
    if are_same(before, after):
        return 0.0, 0.0
    pair = [evaluator(metric, target, each) for each in (before, after)]
    values = resample(pair, len(target), RESAMPLES, seed)
    lost = metric.sign * (values[:, 0] - values[:, 1])
    lost = lost[~np.isnan(lost)]
    return loss, max(loss, float(np.quantile(lost, CONFIDENCE))) if len(lost) else loss


def are_same(before: Array, after: Array) -> bool:
    """Whether predictions differ by no more than rounding."""
    return before.shape == after.shape and bool(np.allclose(after, before, rtol=SAME, atol=SAME))


def refusal(variant: VariantMeasurement, same: bool, max_metric_loss: float, max_latency_ms: float | None) -> str:
    """Why a variant may not be served; empty if it may.

    Args:
        variant: The measured variant.
        same: Whether its predictions are those of fp32.
        max_metric_loss: The spec's; 0 asks for the same predictions: on few rows it can seem that nothing is lost.
        max_latency_ms: The spec's.
    """
    if variant.refused:
        return variant.refused
    assert variant.most_lost is not None
    assert variant.latency_ms is not None
    if max_metric_loss == 0 and not same:
        return "its predictions are not those of fp32, and serve.max_metric_loss is 0"
    if variant.most_lost > max_metric_loss:
        return f"may lose {variant.most_lost:.3g}, serve.max_metric_loss is {max_metric_loss:g}"
    if max_latency_ms is not None and variant.latency_ms > max_latency_ms:
        return f"takes {variant.latency_ms:.3g} ms, serve.max_latency_ms is {max_latency_ms:g}"
    return ""


def choose(table: Sequence[VariantMeasurement]) -> list[VariantMeasurement]:
    """The table with the smallest variant that may be served marked; fp32, the first, if none may or all are as large.

    Latency counts only against the spec's limit: as a criterion it would make the choice depend on the load of the
    machine.
    """
    fitting = [each for each in table if not each.refused and each.size_bytes is not None]
    best = min(fitting, key=lambda each: each.size_bytes or 0, default=table[0])
    return [each.model_copy(update={"served": each is best}) for each in table]
