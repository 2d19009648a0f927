"""Calibration of predicted quantiles: the share of true values within the interval of the outermost ones.

A model whose interval does not have its intended coverage on test rows is shown as such on the card. Monitoring asks
another question, whether the coverage has changed since, so that one model does not alarm for ever.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from models.frozen_model import FrozenModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from models.metrics.outputs import Output

CRITICAL = 3.3
"""Standard errors of the difference that are a change: 1 false alarm in 1,000 windows."""


class Coverage(FrozenModel):
    """How many of some true values lay within the interval, and the share that was intended."""

    intended: float
    num_covered: int
    num_rows: int
    design_effect: float = Field(1.0, description="Variance of the share by that of as many independent rows.")

    @property
    def share(self) -> float:
        """Share of the true values within the interval."""
        return self.num_covered / max(1, self.num_rows)

    def has_changed(self, since: Coverage) -> bool:
        """Return whether the coverage differs from an earlier one: a two-proportion z test beyond `CRITICAL`.

        Rows depend on each other as much as those of the earlier one did.

        Source: Agresti (2013), Categorical Data Analysis, 3.1, with the pooled variance.
        """
        total = self.num_rows + since.num_rows
        pooled = (self.num_covered + since.num_covered) / max(1, total)
        variance = (
            pooled * (1 - pooled) * (1 / max(1, self.num_rows) + 1 / max(1, since.num_rows)) * since.design_effect
        )
        return abs(self.share - since.share) > CRITICAL * math.sqrt(variance) if variance > 0 else False


def coverage_of(
    target: NDArray[np.float64],
    prediction: NDArray[np.float64],
    outputs: Sequence[Output],
    times: NDArray[np.int64] | None = None,
    span: int = 1,
    weights: NDArray[np.float64] | None = None,
) -> Coverage | None:
    """Return the coverage of predicted quantiles; None without any true value, and for other outputs.

    Args:
        target: True values (example, quantile).
        prediction: Predicted quantiles (example, quantile), ascending.
        outputs: The quantiles; at several horizons a row counts as covered by the share of its horizons.
        times: Of series, the time of each example (example,): neighbours, and all series at a time, depend on each
            other.
        span: Steps of time that depend on each other: the farthest horizon.
        weights: How much each example counts (example,); None: all alike. The rows are then as many as these are worth.
    """
    from models.metrics.outputs import is_covered  # NumPy: the page that shows a coverage needs none

    low, high = (outputs[0].quantile, outputs[-1].quantile) if outputs else (None, None)
    if not len(target) or low is None or high is None:
        return None
    covered = is_covered(target, prediction, outputs).mean(axis=1)
    num = float(len(covered)) if weights is None else float(weights.sum() ** 2 / (weights**2).sum())
    share = float(covered.mean() if weights is None else covered @ weights / weights.sum())
    return Coverage(
        intended=high - low,
        num_covered=round(share * num),
        num_rows=round(num),
        design_effect=1.0 if times is None else _design_effect(covered, times, span),
    )


def _design_effect(covered: NDArray[np.float64], times: NDArray[np.int64], span: int) -> float:
    """Return the variance of the share covered by blocks of `span` times, by that of independent rows, at least 1.

    Source: Kish (1965), Survey Sampling, 8.2.
    """
    import numpy as np

    share, num = float(covered.mean()), len(covered)
    blocks = np.unique(times, return_inverse=True)[1] // span
    num_blocks = int(blocks.max()) + 1
    if num_blocks < 2 or not 0 < share < 1:
        return 1.0
    sums = np.bincount(blocks, covered - share)
    variance = float((sums**2).sum()) * num_blocks / (num_blocks - 1)
    return max(1.0, variance / (num * share * (1 - share)))
