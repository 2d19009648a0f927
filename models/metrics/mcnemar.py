"""McNemar's test: compares two classifiers by the examples that only one of them classifies correctly."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from models.metrics.classification import predicted_class
from models.metrics.evaluator import Array


class DiscordantPairs(NamedTuple):
    """Numbers of examples that only one classifier classifies correctly."""

    challenger: int
    champion: int
    num_examples: int


def discordant(target: Array, challenger: Array, champion: Array) -> DiscordantPairs:
    """Count the examples that only one of the two classifies correctly; predictions are probabilities."""
    right, before = predicted_class(challenger) == target, predicted_class(champion) == target
    return DiscordantPairs(int((right & ~before).sum()), int((before & ~right).sum()), len(target))


def midp(counts: DiscordantPairs) -> float:
    """Return the two-sided mid-p value of "both err equally often"; 1 when they never differ.

    Source: Fagerland, Lydersen and Laake (2013), BMC Medical Research Methodology 13:91.
    """
    from scipy.stats import binom

    total, fewer = counts.challenger + counts.champion, min(counts.challenger, counts.champion)
    if counts.challenger == counts.champion:
        return 1.0
    return float(2 * binom.cdf(fewer, total, 0.5) - binom.pmf(fewer, total, 0.5))


def difference(counts: DiscordantPairs, confidence: float) -> tuple[float, float, float, float]:
    """Return the gain in accuracy, the two ends of its interval, and its standard error.

    Source: Bonett and Price (2012), Statistical Methods in Medical Research 21(5): adjusted Wald interval.
    """
    from scipy.special import ndtri

    only, other_only, num = counts.challenger + 1, counts.champion + 1, counts.num_examples + 2
    centre = (only - other_only) / num
    error = math.sqrt((only / num + other_only / num - centre**2) / num)
    reach = float(ndtri((1 + confidence) / 2)) * error
    gain = (counts.challenger - counts.champion) / max(1, counts.num_examples)
    return gain, float(np.clip(centre - reach, -1, 1)), float(np.clip(centre + reach, -1, 1)), error
