"""A date or time as an input: its record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from models.inputs.record import InputRecord, Measure, counts_as

Cycle = Literal["day", "week", "year"]


CYCLE_S: dict[Cycle, float] = {"day": 86_400.0, "week": 604_800.0, "year": 31_556_952.0}
"""Seconds of each cycle; a year is 365.2425 days, so the phase of a date differs by a day at most from year to year."""
STEPS = 2.0**24
"""Sines and cosines are rounded to whole parts of it, the steps of float32 near 1: those of noon and midnight are 1e-16
here and 0 there by the library that computes them, and trees would split between the two."""


def moment(seconds: float) -> str:
    """Return a time as ISO 8601 text in UTC, to the second."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


class DatetimeInput(InputRecord):
    """A date or time, in seconds since 1970 in UTC: the sine and cosine of each cycle, and the standardised time.

    A missing time gives zeros. The standardised time is cut to the training range first, so that no model extrapolates.
    """

    PLURAL: ClassVar[str] = "dates and times"
    kind: Literal["datetime"] = "datetime"
    form: Literal["time"] = "time"
    cycles: list[Cycle]
    trend: bool
    low: float = Field(description="The earliest training value.")
    high: float = Field(description="The latest training value.")
    shift: float
    scale: float

    @property
    def width(self) -> int:
        """A sine and a cosine for each cycle, and the trend."""
        return 2 * len(self.cycles) + self.trend

    @classmethod
    def owners(cls, parts: Sequence[Self]) -> list[str]:
        """Return the name of the time behind each column: all sines stand first, then all cosines, then all trends."""
        cycles = [part.name for part in parts for _ in part.cycles]
        return [*cycles, *cycles, *[part.name for part in parts if part.trend]]

    @property
    def measure(self) -> Measure:
        """Its place in the week or the day, for the time itself always moves on."""
        if "week" in self.cycles:
            return "second of the week"
        return "second of the day" if "day" in self.cycles else "value"

    @property
    def summary(self) -> str:
        """What becomes of it."""
        return ", ".join([*self.cycles, *["trend"] * self.trend])

    def warning(self, value: Any) -> str:
        """Return which end of the training range the trend of a time counts as."""
        return counts_as(value, self.low, self.high, moment) if self.trend else ""
