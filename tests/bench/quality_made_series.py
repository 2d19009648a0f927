"""Drawn series of the comparison of defaults: intermittent demand, what is known beforehand, a panel of hours.

No open set at hand holds these. No default was set on them; those of decision 100 were set on series of other laws.
Rows have the columns `time` and `y`, the target, and further columns.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd


def _times(num: int, frequency: str) -> pd.DatetimeIndex:
    return pd.date_range("2008-01-01", periods=num, freq=frequency)


def _cycle(num: int, season: int, shift: float = 0.0) -> np.ndarray:
    angle = 2 * np.pi * (np.arange(num) / season + shift)
    return np.asarray(np.sin(angle) + 0.4 * np.cos(2 * angle))


def panel_of_sensors(rng: np.random.Generator) -> pd.DataFrame:
    """Twelve sensors of six days of hours that return to their own levels."""
    states = np.zeros((12, 144))
    for step in range(1, 144):
        states[:, step] = 0.85 * states[:, step - 1] + rng.normal(0, 1, 12)
    return _panel(states + rng.normal(50, 10, (12, 1)) + 3 * _cycle(144, 24), "h")


def _panel(values: np.ndarray, frequency: str) -> pd.DataFrame:
    num, length = values.shape
    units = np.repeat([f"unit {index}" for index in range(num)], length)
    times = np.tile(_times(length, frequency), num)
    return pd.DataFrame({"time": times, "unit": units, "y": values.ravel()})


def spare_parts(rng: np.random.Generator) -> pd.DataFrame:
    """Demand on one day of five, in bursts."""
    is_busy = np.repeat(rng.random(100) < 0.4, 7)
    return pd.DataFrame({"time": _times(700, "D"), "y": np.where(is_busy, rng.poisson(0.9, 700), 0) * 1.0})


def dying_demand(rng: np.random.Generator) -> pd.DataFrame:
    """Weekly counts whose rate falls to almost none."""
    rate = 6 * np.exp(-np.arange(300) / 110) * (1 + 0.3 * _cycle(300, 52))
    return pd.DataFrame({"time": _times(300, "W"), "y": rng.poisson(rate) * 1.0})


def planned_prices(rng: np.random.Generator) -> pd.DataFrame:
    """Weeks of sales that answer to a planned discount, and pay for it in the week after."""
    discount = np.where(rng.random(260) < 0.25, rng.choice([0.1, 0.2, 0.4], 260), 0.0)
    y = 500 * (1 + 2.2 * discount - 0.5 * np.append(0, discount[:-1]) + 0.1 * _cycle(260, 52)) + rng.normal(0, 25, 260)
    return pd.DataFrame({"time": _times(260, "W"), "y": y, "discount": discount})


def holidays(rng: np.random.Generator) -> pd.DataFrame:
    """Days of visitors with a week, and holidays that double them on weekdays."""
    is_holiday = (rng.random(900) < 0.04) * 1.0
    weekday = np.arange(900) % 7
    level = 200 + 0.05 * np.arange(900) + np.where(weekday >= 5, 120, 0) + 150 * is_holiday * (weekday < 5)
    return pd.DataFrame({"time": _times(900, "D"), "y": level + rng.normal(0, 15, 900), "holiday": is_holiday})


_LAWS: Mapping[str, Callable[[np.random.Generator], pd.DataFrame]] = {
    "made/panel-of-sensors": panel_of_sensors,
    "made/spare-parts": spare_parts,
    "made/dying-demand": dying_demand,
    "made/planned-prices": planned_prices,
    "made/holidays": holidays,
}


def drawn(name: str) -> pd.DataFrame:
    """Return the rows of a law, the same ones each time."""
    return _LAWS[name](np.random.default_rng([zlib.crc32(name.encode()), 0]))
