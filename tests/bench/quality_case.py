"""A data set of the comparison of defaults, and the rule of the two halves.

One half was used while Loopline was built: its results may be looked at, and a default may have been set by them. The
other half is looked at once, when all is done. Which set stands where was written down before any result of a new set:

* a set of which a result was seen already stands in the half used while building;
* of the others the first hexadecimal digit of the sha256 of the name decides: 0, 1 and 2 are used while building, 3 to
  f are looked at once. Three of sixteen make the halves about equal, since all that were seen stand in the first.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

LEAST_WINDOW = 8
MOST_ROWS = 10_000
BUILDING_DIGITS = "012"

Half = Literal["building", "once"]


@dataclass(frozen=True)
class Case:
    """One data set: where it comes from, its target, its metric, and columns that are no inputs.

    Attributes:
        name: Its source and its name there, `modeldata/cells`; the rule of the halves reads it.
        drop: Columns that are left out: keys, and what is known only after the target.
        keep: Values of the target that are kept; empty for all.
        text: The column of texts: of kind text the only input, of kind table beside the others.
        season: Steps of a season, for kind series; the data has the columns `time` and the target.
        times: The first time and the frequency of a series' rows that have none, `1969-01-01 MS`.
        series_key: The column that names the series of a row, where there are many.
        known_future: Columns whose values are known before the target is.
        dates: Columns of dates in words, read as times.
        split: How rows are dealt: `random`, `group:COLUMN` or `time:COLUMN`.
        traits: What is ugly about the data, in words.
        size: Height, width and channels of a picture.
        rows: The rows that are drawn by a fixed seed if there are more.
        seen: How a result was seen before the rule of the halves; empty if none was.
    """

    name: str
    target: str
    metric: str
    drop: tuple[str, ...] = ()
    kind: Literal["table", "text", "image", "series"] = "table"
    keep: tuple[str, ...] = ()
    text: str = ""
    season: int = 0
    times: str = ""
    series_key: str = ""
    known_future: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    split: str = "random"
    traits: tuple[str, ...] = ()
    size: tuple[int, int, int] = (8, 8, 1)
    rows: int = MOST_ROWS
    seen: str = ""

    @property
    def short(self) -> str:
        """The name without its package."""
        return self.name.rpartition("/")[2] + (" (pictures)" if self.name == "sklearn/digits" and self.is_image else "")

    @property
    def is_image(self) -> bool:
        """Whether rows are pictures."""
        return self.kind == "image"

    @property
    def keys(self) -> list[str]:
        """The column of groups, which new groups do not share: no input for anybody."""
        by, _, column = self.split.partition(":")
        return [column] if by == "group" else []

    @property
    def window(self) -> int:
        """Steps of a series that a forecast sees: three seasons."""
        return max(LEAST_WINDOW, 3 * self.season)

    @property
    def half(self) -> Half:
        """`building` if results may be looked at while Loopline is built, `once` if only at the end."""
        digit = hashlib.sha256(self.name.encode()).hexdigest()[0]
        return "building" if self.seen or digit in BUILDING_DIGITS else "once"
