"""Series of the comparison of defaults, and how they are read."""

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
_NEW_SERIES: tuple[Case, ...] = ()
SERIES = (*(replace(case, seen=PUBLISHED) for case in _SEEN_SERIES), *_NEW_SERIES)


def in_order(case: Case, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns `time` and the target; R's years with fractions become months and quarters."""
    if "date" in frame:
        time = pd.to_datetime(frame["date"])
    else:
        months = np.rint(frame["time"].to_numpy() * 12).astype(int)
        time = pd.to_datetime([f"{month // 12:04d}-{month % 12 + 1:02d}-01" for month in months])
    return pd.DataFrame({"time": time, case.target: frame[case.target].astype(float)}).sort_values(
        "time", ignore_index=True
    )
