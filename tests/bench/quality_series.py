"""Series of the comparison of defaults, how they are read, and the windows that peers get."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from tests.bench.quality_case import Case
from tests.bench.quality_tables import PUBLISHED

_SEEN_SERIES = (
    Case("datasets/nottem", "value", "mae", kind="series", season=12),
    Case("fpp2/h02", "value", "mae", kind="series", season=12),
    Case("fpp2/qgas", "value", "mae", kind="series", season=4),
    Case("datasets/sunspot.month", "value", "mae", kind="series", season=12),
    Case("mosaicData/BirthsSSA", "births", "mae", kind="series", season=7),
)
_SHORT, _PANEL, _INTERMITTENT, _KNOWN, _BESIDE = (
    (trait,) for trait in ("short", "panel", "intermittent", "known future", "trending companions")
)
_NEW_SERIES = (
    Case("fpp2/wmurders", "value", "mae", kind="series", traits=_SHORT),
    Case("fpp2/austourists", "value", "mae", kind="series", season=4, traits=_SHORT),
    Case("plm/Cigar", "sales", "mae", kind="series", series_key="state", traits=_PANEL + _SHORT + _BESIDE),
    Case("fpp3/aus_accommodation", "Takings", "mae", kind="series", season=4, series_key="State",
         traits=_PANEL + _BESIDE),
    Case("made/panel-of-sensors", "y", "mae", kind="series", season=24, series_key="unit", traits=_PANEL),
    Case("made/spare-parts", "y", "mae", kind="series", season=7, traits=_INTERMITTENT),
    Case("made/dying-demand", "y", "mae", kind="series", traits=_INTERMITTENT),
    Case("datasets/Seatbelts", "DriversKilled", "mae", kind="series", season=12, times="1969-01-01 MS",
         drop=("drivers", "front", "rear", "VanKilled"), known_future=("law",), traits=_KNOWN),
    Case("fpp2/elecdaily", "Demand", "mae", kind="series", season=7, times="2014-01-01 D", known_future=("WorkDay",),
         traits=_KNOWN),
    Case("made/planned-prices", "y", "mae", kind="series", known_future=("discount",), traits=_KNOWN),
    Case("made/holidays", "y", "mae", kind="series", season=7, known_future=("holiday",), traits=_KNOWN),
    Case("AER/USMacroG", "consumption", "mae", kind="series", season=4, times="1950-01-01 QS",
         drop=("inflation", "interest"), traits=_BESIDE),
    Case("datasets/EuStockMarkets", "FTSE", "mae", kind="series", times="1991-07-01 D", traits=_BESIDE),
)  # fmt: skip
SERIES = (*(replace(case, seen=PUBLISHED) for case in _SEEN_SERIES), *_NEW_SERIES)


def until_origin(case: Case, frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the rows that a split may see: all, or a tenth of the steps fewer for each further split.

    The last tenth of what is left is predicted, so no two of five splits predict the same steps.
    """
    if case.kind != "series":
        return frame
    times = np.unique(frame["time"])
    return frame[frame["time"] < times[len(times) * (10 - seed) // 10]] if seed else frame


def in_order(case: Case, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns `time`, the target and those beside it; the rows of each series in order."""
    named = [name for name in frame if str(name).lower() in ("time", "date", "year")]
    beside = frame.drop(columns=[*named, *case.drop])
    texts = ([case.series_key] if case.series_key else []) if case.series_key in beside else []
    numbers = beside.drop(columns=texts).select_dtypes("number").astype(float)
    if case.seen:
        numbers = numbers[[case.target]]
    rows = pd.DataFrame({"time": _times(case, frame, named), **beside[texts].astype(str), **numbers})
    return rows.sort_values([*texts, "time"], ignore_index=True)


def _times(case: Case, frame: pd.DataFrame, named: list[str]) -> pd.Series | pd.DatetimeIndex:
    """Return the times; quarters in words and R's years with fractions become dates."""
    if case.times:
        first, frequency = case.times.split()
        return pd.date_range(first, periods=len(frame), freq=frequency)
    column = frame[named[0]]
    if column.dtype.kind == "M":
        return column
    if column.dtype.kind not in "if":
        return pd.PeriodIndex(column.str.replace(" ", ""), freq="Q").to_timestamp()
    months = np.rint(np.where(column < 100, column + 1900, column) * 12).astype(int)
    return pd.to_datetime([f"{month // 12:04d}-{month % 12 + 1:02d}-01" for month in months])


def windows(case: Case, frame: pd.DataFrame) -> tuple[np.ndarray, pd.Series, np.ndarray]:
    """Return the windows before each step that has one, the targets with the series as index, and their rows.

    Windows have the shape (step, window, column). The target's comes first, as it is; then the other columns, as how
    far they are from their last value; those known beforehand are as they are, a step later.
    """
    beside = [name for name in frame if name not in ("time", case.target, case.series_key, *case.known_future)]
    parts, places = [], []
    groups = frame.groupby(case.series_key or np.zeros(len(frame)), sort=False).indices.values()
    for rows in groups:
        views = {
            name: np.lib.stride_tricks.sliding_window_view(frame[name].to_numpy()[rows], case.window)
            for name in (case.target, *beside, *case.known_future)
        }
        past = [views[case.target][:-1], *(views[name][:-1] - views[name][:-1, -1:] for name in beside)]
        parts.append(np.stack([*past, *(views[name][1:] for name in case.known_future)], axis=2))
        places.append(rows[case.window :])
    at = np.concatenate(places)
    keys = frame[case.series_key] if case.series_key else pd.Series(0, frame.index)
    return np.concatenate(parts), frame[case.target].iloc[at].set_axis(keys.iloc[at]), at
