"""Cases of a table of tests that only repeat others of it: `make test-wide` runs them, and not every change."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable
from typing import Any

import pytest
from hypothesis import settings

wide = functools.partial(pytest.param, marks=pytest.mark.wide)
"""Write `wide("gru", "series")` in a table for `("gru", "series")`."""


def wide_but(names: Iterable[Any], kept: Container[Any]) -> list[Any]:
    """The values of a parameter, of which every change runs those of `kept`."""
    return [name if name in kept else wide(name) for name in names]


def examples(number: int, **others: Any) -> settings:
    """Settings of a property: so many examples in `make test-wide`, fewer with every change, more in a soak."""
    return settings(max_examples=number * settings.default.max_examples // 50, **others)
