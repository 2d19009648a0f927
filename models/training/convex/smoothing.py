"""Exponential smoothing of a window: level, damped trend and season, as linear maps of the window's steps.

With its rates given, a smoothed forecast is linear in the window, so it needs nothing in a graph that the linear
reference forecast does not have.

Source: Hyndman, Koehler, Ord and Snyder (2008), "Forecasting with Exponential Smoothing", ETS(A,Ad,A) and ETS(A,Ad,N)
in their error correction form; Gardner and McKenzie (1985) for the damped trend.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

_LEVEL = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
_TREND = (0.0, 0.1, 0.3)
"""A share of the rate of the level."""
_SEASON = (0.05, 0.15, 0.35, 0.7)
_DAMPING = 0.9


def smoothing_maps(length: int, season: int | None, horizons: Sequence[int]) -> np.ndarray:
    """Return the weights of a window's steps in each forecast, float64 (rates, horizon, step); those of a row sum to 1.

    Without a season, or where a window holds less than two, level and trend alone are smoothed.

    Cost: O(rates x length x (length + horizons)).
    """
    maps = _smoothed(length, 1, itertools.product(_LEVEL, _TREND, [0.0]), horizons)
    if season is None or length < 2 * season:
        return maps
    return np.concatenate([maps, _smoothed(length, season, itertools.product(_LEVEL, _TREND, _SEASON), horizons)])


def _smoothed(
    length: int, season: int, rates: itertools.product[tuple[float, ...]], horizons: Sequence[int]
) -> np.ndarray:
    """Return the maps of some rates; the first season of the window is what level and season begin with."""
    level_rate, trend_share, season_rate = np.array(list(rates)).T[:, :, None]
    steps = np.eye(length)
    level = np.tile(steps[:season].mean(axis=0), (len(level_rate), 1))
    seasons = steps[:season, None] - level  # (season, rates, step)
    trend = np.zeros_like(level)
    for step in range(season, length):
        ahead = level + _DAMPING * trend
        error = steps[step] - ahead - seasons[step % season]
        level = ahead + level_rate * error
        trend = _DAMPING * trend + level_rate * trend_share * error
        seasons[step % season] += season_rate * error
    damped = np.cumsum(_DAMPING ** np.arange(1, max(horizons) + 1))
    forecasts = [level + damped[ahead - 1] * trend + seasons[(length - 1 + ahead) % season] for ahead in horizons]
    return np.stack(forecasts, axis=1)
