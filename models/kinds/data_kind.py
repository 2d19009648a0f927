"""The kinds of data: what an example is made of, a row of facts each.

A row holds what two rooms or more ask. What one room alone does for a kind stands in a table of that room, a
`PerDataKind`: the type checker refuses a table in which one is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypedDict, TypeVar, get_args

Kind = Literal["table", "image", "series", "text"]

X = TypeVar("X")


class PerDataKind(TypedDict, Generic[X]):
    """A table with a value for every kind of data."""

    table: X
    image: X
    series: X
    text: X


@dataclass(frozen=True)
class DataKindRow:
    """The facts about a kind of data."""

    name: Kind
    rows_apart: bool = False
    """An example is one row, so that examples do not overlap: tables and images."""
    has_columns: bool = False
    """The numbers of an example have names, those of columns: tables and series."""


DATA_KINDS: PerDataKind[DataKindRow] = {
    "table": DataKindRow("table", rows_apart=True, has_columns=True),
    "image": DataKindRow("image", rows_apart=True),
    "series": DataKindRow("series", has_columns=True),
    "text": DataKindRow("text"),
}
KIND_NAMES: tuple[Kind, ...] = get_args(Kind)
