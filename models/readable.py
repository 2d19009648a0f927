"""Numbers as people read them, wherever a page, a verdict or a message shows one."""

from __future__ import annotations

import math

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
