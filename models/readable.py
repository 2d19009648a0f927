"""Numbers as people read them, wherever a page, a verdict or a message shows one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LARGEST = 1e15
"""From here on a power of ten says more than its digits."""


def readable(value: float, digits: int = 4, sign: str = "") -> str:
    """Return a number with so many significant digits, but all of its whole ones: `0.7462`, `14,930`, `1.2e−07`.

    Args:
        value: The number.
        digits: Significant digits.
        sign: `+` shows the sign of positive numbers too.
    """
    is_large = 10 ** (digits - 1) <= abs(value) < _LARGEST and math.isfinite(value)
    return (f"{value:{sign},.0f}" if is_large else f"{value:{sign}.{digits}g}").replace("-", "−")


def as_shown(value: T, shows_rows: bool, hide: Callable[[T], T]) -> T:
    """Return a value that says something of single rows, or what `hide` leaves of it where the spec shows no rows.

    Every stage that says something of rows asks here; `shows_rows` is the spec's `data.show_rows`.
    """
    return value if shows_rows else hide(value)


def no_text(text: str) -> str:
    """Hide a text as a whole."""
    del text
    return ""
