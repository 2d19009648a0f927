"""Bicycles that pass a counter each hour for a year: days, weeks, weather and chance, made by rules."""

from __future__ import annotations

import numpy as np
import pandas as pd

DAYS = 365


def load() -> pd.DataFrame:
    """One row an hour, oldest first; what is known of the same hour a day later ends in `_ahead`."""
    random = np.random.default_rng(11)
    hours = np.arange(DAYS * 24)
    clock = 2 * np.pi * (hours % 24) / 24
    weekend = (hours // 24) % 7 >= 5
    rain = np.repeat(random.random(DAYS) < 0.3, 24)
    forecast = np.where(np.repeat(random.random(DAYS) < 0.9, 24), rain, ~rain)
    usual = 160 + 120 * np.sin(clock - 1.8) + 60 * np.sin(2 * clock - 1.0) * ~weekend
    usual = np.clip(usual * np.where(weekend, 0.6, 1) * np.where(rain, 0.5, 1), 2, None)
    return pd.DataFrame(
        {
            "hour": pd.Timestamp("2026-01-05") + pd.to_timedelta(hours, unit="h"),
            "bicycles": random.poisson(usual).astype(float),
            "rain": rain.astype(int),
            "clock_sin": np.sin(clock).round(9),
            "clock_cos": np.cos(clock).round(9),
            "weekend_ahead": np.roll(weekend, -24).astype(int),
            "rain_forecast_ahead": np.roll(forecast, -24).astype(int),
        }
    )
