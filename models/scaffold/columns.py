"""What a first spec says of each column: what it was taken for, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from models.inputs.types import as_text, is_number, is_text
from models.scaffold.expectations import yaml_text
from models.scaffold.roles import is_named_as_id

MOST_LINES = 24
"""Columns that have a line: of a table with more, people read none."""


def input_lines(table: pa.Table, kinds: Mapping[str, str]) -> Iterator[str]:
    """Yield a comment for each input column: its kind, and what of its values says so.

    Args:
        table: The input columns.
        kinds: The kinds that the spec names.
    """
    inputs = table.column_names
    if inputs:
        yield "    # Taken for inputs; `kinds` changes what a column is:"
    for name in inputs[:MOST_LINES]:
        column = table.column(name)
        yield f"    #   {yaml_text(name)}: {reading_of(column, kinds.get(name, ''))}"
    if len(inputs) > MOST_LINES:
        yield f"    #   and {len(inputs) - MOST_LINES:,} more, by their types: the card lists all"


def plain_id(table: pa.Table, ids: Sequence[str]) -> str | None:
    """Return the column that names the rows, of those with another value in every row; None if none does.

    One that is named as an id comes first; else texts of one word, such as codes. Titles and names of people may come
    twice tomorrow.
    """
    named = [name for name in ids if is_named_as_id(name)]
    codes = [name for name in ids if is_text(table.schema.field(name).type) and not _has_spaces(table.column(name))]
    return next(iter([*named, *codes]), None)


def reading_of(column: pa.ChunkedArray, kind: str) -> str:
    """Return what an input column is taken for, and its share of missing values: `category, 3 levels, 2 % missing`.

    Args:
        column: Its values.
        kind: The kind that the spec names; empty for none.
    """
    fits = _OF_KIND.get(kind) or next(reading for takes, reading in _OF_TYPE if takes(column.type))
    return f"{fits(column)}{_share_missing(column)}"


def _sentences(column: pa.ChunkedArray) -> str:
    return f"text, {num_values(column):,} different ones"


def _times(column: pa.ChunkedArray) -> str:
    if is_text(column.type):
        return "date or time, as text"
    ends = pc.min_max(column.cast(pa.timestamp("s"), safe=False)).as_py()
    return f"date or time, {ends['min']:%Y-%m-%d} to {ends['max']:%Y-%m-%d}"


def _numbers(column: pa.ChunkedArray) -> str:
    return f"number, {num_values(column):,} values"


def _levels(column: pa.ChunkedArray) -> str:
    return f"category, {num_values(column):,} levels"


def _unread(column: pa.ChunkedArray) -> str:
    return f"left out, for no model reads {column.type}"


_OF_KIND: dict[str, Callable[[pa.ChunkedArray], str]] = {"text": _sentences, "datetime": _times}
"""How columns are described whose kind the spec names."""
_OF_TYPE: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.ChunkedArray], str]], ...] = (
    (lambda dtype: bool(pa.types.is_timestamp(dtype) or pa.types.is_date(dtype)), _times),
    (is_number, _numbers),
    (lambda dtype: is_text(dtype) or bool(pa.types.is_boolean(dtype)), _levels),
    (lambda _: True, _unread),
)
"""How others are described, by their type; the first that fits."""


def _share_missing(column: pa.ChunkedArray) -> str:
    is_missing = pc.is_null(column, nan_is_null=True)
    share = pc.mean(is_missing.cast(pa.float64())).as_py() or 0.0
    return f", {max(1, round(100 * share))} % missing" if share else ""


def num_values(column: pa.ChunkedArray) -> int:
    """Return how many different values a column has, without missing ones."""
    return int(pc.count_distinct(column).as_py())


def _has_spaces(column: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.match_substring(as_text(column), " ")).as_py())
