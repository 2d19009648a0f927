"""The lowest and the highest value of bounded metrics by name; without NumPy, for the pages of a server."""

from __future__ import annotations

_SHARES = (
    *("roc_auc", "pr_auc", "accuracy", "balanced_accuracy", "precision", "recall", "f1", "f1_micro"),
    *("ece", "coverage_gap", "ndcg", "map", "mrr"),
)
LIMITS: dict[str, tuple[float, float]] = {**dict.fromkeys(_SHARES, (0.0, 1.0)), "brier": (0.0, 2.0)}
"""Lowest and highest value of each bounded metric; `brier` reaches 2 for more than two classes."""


def within_limits(metric: str, low: float, high: float) -> tuple[float, float]:
    """Return the ends of a chart's axis, not beyond the values that the metric can have.

    Args:
        metric: Its name; `ndcg_at_10` has the limits of `ndcg`.
        low: The lower end that the chart would have.
        high: The upper end.
    """
    lowest, largest = LIMITS.get(metric.partition("_at_")[0], (low, high))
    return max(low, lowest), min(high, largest)
