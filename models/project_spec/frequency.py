"""The frequency of a series: how far apart its steps are, as text in a spec and as numbers."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Unit = Literal["row", "number", "microsecond", "weekday", "month"]

ROWS = "rows"
FORMS = '"hour", "30 minutes", "day", "weekday", "week", "month", "quarter", "year", a number, or "rows"'
_SECOND = 1_000_000
_UNITS: dict[str, tuple[int, Unit]] = {
    "second": (_SECOND, "microsecond"),
    "minute": (60 * _SECOND, "microsecond"),
    "hour": (3600 * _SECOND, "microsecond"),
    "day": (86_400 * _SECOND, "microsecond"),
    "week": (7 * 86_400 * _SECOND, "microsecond"),
    "weekday": (1, "weekday"),
    "month": (1, "month"),
    "quarter": (3, "month"),
    "year": (12, "month"),
}
_TEXT = re.compile(r"(?:(\d{1,9})\s*)?([a-z]+?)s?", re.IGNORECASE)


class Frequency(NamedTuple):
    """The distance between two steps: `num_units` units.

    `microsecond`: times are dates. `weekday`: days from Monday to Friday. `month`: one row a calendar month, whatever
    its day. `number`: times are numbers. `row`: every row is a step, and times only put rows in order.
    """

    num_units: float
    unit: Unit

    @property
    def text(self) -> str:
        """The frequency as the spec writes it, in the largest unit of which it is a multiple."""
        if self.unit == "row":
            return ROWS
        if self.unit == "number":
            return f"{self.num_units:.15g}"
        sizes = [(size, name) for name, (size, unit) in _UNITS.items() if unit == self.unit]
        fitting = [(size, name) for size, name in sizes if not self.num_units % size]
        if not fitting:
            return f"{self.num_units / _SECOND:g} seconds"
        size, name = max(fitting)
        number = int(self.num_units // size)
        return name if number == 1 else f"{number} {name}s"


def parse_frequency(text: str) -> Frequency:
    """Return the frequency that a text names.

    Raises:
        ValueError: The text names none.
    """
    word = text.strip().lower()
    if word in ("row", ROWS):
        return Frequency(1, "row")
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if 0 < number < 1e15:
        return Frequency(number, "number")
    match = _TEXT.fullmatch(word)
    if match is None or match[2] not in _UNITS or match[1] == "0":
        raise ValueError(f"frequency: got {text!r}, expected {FORMS}")
    size, unit = _UNITS[match[2]]
    return Frequency(size * int(match[1] or 1), unit)
