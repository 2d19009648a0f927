"""A metric of one's own: the mean cost of the answers."""

from __future__ import annotations

import numpy as np

MISS, FALSE_ALARM = 10.0, 1.0


def cost(target: np.ndarray, prediction: np.ndarray) -> float:
    """Return the mean cost of a row.

    Args:
        target: 1 if malignant, else 0 (row,).
        prediction: Probability that it is malignant (row,).
    """
    alarm = prediction >= FALSE_ALARM / (FALSE_ALARM + MISS)
    return float(np.mean(MISS * ((target == 1) & ~alarm) + FALSE_ALARM * ((target == 0) & alarm)))
