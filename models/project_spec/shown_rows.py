"""Rows shown or not: the only reader of `data.show_rows`. Whatever says something of single rows passes `as_shown`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from models.project_spec.blocks import Data

T = TypeVar("T")


def rows_are_shown(data: Data) -> bool:
    """Return whether pages may show rows, and values that fewer than ten rows have."""
    return data.show_rows


def as_shown(value: T, data: Data, hide: Callable[[T], T]) -> T:
    """Return a value that says something of single rows, or what `hide` leaves of it where the spec shows no rows."""
    return value if rows_are_shown(data) else hide(value)


def no_text(text: str) -> str:
    """Hide a text as a whole."""
    del text
    return ""
