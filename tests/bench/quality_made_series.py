"""Series of other kinds for the comparison: short, panel, intermittent, known future, companions that grow or lead.

They are drawn, not found: no open set with a licence holds them without a network. No default was set on them; those of
decision 100 were set on series of other laws. A name is that of a data set, `made/...`, so the rule of the two halves
(`quality_case.Case.half`) reads it as any other.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

Rows = Callable[[np.random.Generator], pd.DataFrame]


@dataclass(frozen=True)
class MadeSeries:
    """A drawn series: its name, its law, steps of a season (0: none), and the keys of `data.window` beside the length.

    The rows have the columns `time` and `y`, the target; the others are inputs or what `window` names.
    """

    name: str
    law: Rows
    season: int
    window: dict[str, Any] = field(default_factory=dict)

    def rows(self, seed: int = 0) -> pd.DataFrame:
        """Return the rows, other ones for each seed."""
        return self.law(np.random.default_rng([zlib.crc32(self.name.encode()), seed]))


def _times(num: int, frequency: str) -> pd.DatetimeIndex:
    return pd.date_range("2008-01-01", periods=num, freq=frequency)


def _walk(rng: np.random.Generator, num: int, drift: float, step: float) -> np.ndarray:
    return np.cumsum(rng.standard_t(6, num) * step + drift)


def _cycle(num: int, season: int, shift: float = 0.0) -> np.ndarray:
    angle = 2 * np.pi * (np.arange(num) / season + shift)
    return np.asarray(np.sin(angle) + 0.4 * np.cos(2 * angle))


def short_quarters(rng: np.random.Generator) -> pd.DataFrame:
    """Eighty quarters: trend, season, noise that grows with the level."""
    level = 40 * np.exp(0.012 * np.arange(80) + _walk(rng, 80, 0, 0.01))
    return pd.DataFrame({"time": _times(80, "QS"), "y": level * (1 + 0.12 * _cycle(80, 4) + rng.normal(0, 0.02, 80))})


def short_years(rng: np.random.Generator) -> pd.DataFrame:
    """Seventy years that swing round a slowly moving level."""
    noise = rng.normal(size=72)
    y = 10 + _walk(rng, 70, 0.05, 0.2) + noise[2:] + 0.9 * noise[1:-1] - 0.4 * noise[:-2]
    return pd.DataFrame({"time": _times(70, "YS"), "y": y})


def panel_of_shops(rng: np.random.Generator) -> pd.DataFrame:
    """Eight shops of ninety weeks, whose levels differ a thousandfold and share what moves them."""
    common = _walk(rng, 90, 0, 0.03)
    logs = rng.uniform(1, 8, (8, 1)) + common + rng.normal(0, 0.05, (8, 90)) + 0.1 * _cycle(90, 13)
    return _panel(np.exp(logs), "W")


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


def growing_companions(rng: np.random.Generator) -> pd.DataFrame:
    """Twenty-five years of months that grow, beside five others that grow by themselves."""
    others = {f"other {index}": 100 * np.exp(_walk(rng, 300, 0.004, 0.01)) for index in range(5)}
    y = 80 * np.exp(_walk(rng, 300, 0.003, 0.006)) * (1 + 0.05 * _cycle(300, 12))
    return pd.DataFrame({"time": _times(300, "MS"), "y": y, **others})


def leading_orders(rng: np.random.Generator) -> pd.DataFrame:
    """Months of shipments that follow the orders of the two months before, which grow."""
    orders = 300 + _walk(rng, 322, 1.5, 12)
    y = 0.6 * orders[1:-1] + 0.4 * orders[:-2] + rng.normal(0, 5, 320)
    return pd.DataFrame({"time": _times(320, "MS"), "y": y, "orders": orders[2:], "rate": _walk(rng, 320, 0, 0.1)})


def heated_load(rng: np.random.Generator) -> pd.DataFrame:
    """Hours of load that answers to cold alone, and to the hour of the day."""
    temperature = 12 + 6 * _cycle(1500, 24, 0.6) + _walk(rng, 1500, 0, 0.25)
    y = 300 + 40 * _cycle(1500, 24) + 6 * np.maximum(15 - temperature, 0) + rng.normal(0, 8, 1500)
    return pd.DataFrame({"time": _times(1500, "h"), "y": y, "temperature": temperature})


def broken_level(rng: np.random.Generator) -> pd.DataFrame:
    """Days whose level jumps three times, beside a noisy column that tells nothing."""
    level = np.repeat(rng.normal(0, 40, 5), 120) + 5 * _cycle(600, 7)
    return pd.DataFrame({"time": _times(600, "D"), "y": level + rng.normal(0, 3, 600), "noise": rng.normal(size=600)})


MADE_SERIES = (
    MadeSeries("made/short-quarters", short_quarters, 4),
    MadeSeries("made/short-years", short_years, 0),
    MadeSeries("made/panel-of-shops", panel_of_shops, 0, {"series_key": "unit"}),
    MadeSeries("made/panel-of-sensors", panel_of_sensors, 24, {"series_key": "unit"}),
    MadeSeries("made/spare-parts", spare_parts, 7),
    MadeSeries("made/dying-demand", dying_demand, 0),
    MadeSeries("made/planned-prices", planned_prices, 0, {"known_future": ["discount"]}),
    MadeSeries("made/holidays", holidays, 7, {"known_future": ["holiday"]}),
    MadeSeries("made/growing-companions", growing_companions, 12),
    MadeSeries("made/leading-orders", leading_orders, 12),
    MadeSeries("made/heated-load", heated_load, 24),
    MadeSeries("made/broken-level", broken_level, 7),
)
