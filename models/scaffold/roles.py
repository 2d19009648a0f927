"""The roles of columns that a first spec guesses from names and behaviour: ids, and the times when rows came."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from models.inputs.categorical.rows import MIN_ROWS_OF_IDENTITY
from models.inputs.types import is_text

LEAST_DENSITY = 0.25
"""Least share of the pairs of a unit and a time that have a row, for a table of units over time."""
NAMED, BEHAVES = "an id: every row has another value", "an id: every row has another value, in the file's order"
_ID_WORDS = re.compile(r"ids?|uuid|guid|key|pk|index|idx|no|nr|number|rownames?|row|sku|unnamed")
_ID_ENDINGS = re.compile(
    r"(user|customer|client|person|patient|employee|passenger|member|account|order|case|sample|row|record|item|product|"
    r"loan|ticket|trip|event|session|device|transaction|invoice|student)s?(id|no|nr|key)"
)
"""Ids written in one word of small letters."""
_TIME_WORDS = re.compile(r"year|month|week|day|date|hour|minute|second|time|timestamp|epoch|step|period|quarter")
_DATE_WORDS = re.compile(r"[a-z]*date|dt|ymd|yyyymmdd|datum")
"""Of numbers that have the digits of a date; `candidate` alone says nothing."""
_FACT_WORDS = re.compile(
    r"birth(day|date)?|dob|born|death|died|hir(e|ed|ing|edate)|due(date)?|deadline|expir(y|es?|ed|ation)|maturity|"
    r"founded|built"
)
"""Of dates that are facts of a person or a thing: they lie long before a row came, or after it."""


def words_of(name: str) -> list[str]:
    """Return the words of a column's name in small letters, in any case style: `CustomerID` is customer, id."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+", name)]


def id_reason(name: str, column: pa.ChunkedArray, num_values: int) -> str | None:
    """Return why a column is an id, or None: each row has another value, and its name or the order of values says so.

    Texts need no more than different values. Whole numbers are an id by name (`NAMED`), or because they only grow or
    only fall from row to row (`BEHAVES`), as the number of a row does; a file in the order of the answer makes such a
    number a leak. Numbers that are named as times are none.

    Args:
        name: The column's name.
        column: Its values.
        num_values: How many different ones there are, without missing ones.
    """
    if num_values < len(column) or len(column) < MIN_ROWS_OF_IDENTITY:
        return None
    if is_text(column.type):
        return NAMED
    if not pa.types.is_integer(column.type):
        return None
    if is_named_as_id(name):
        return NAMED
    values = column.to_numpy()
    is_ordered = bool((values[1:] > values[:-1]).all() or (values[1:] < values[:-1]).all())
    return BEHAVES if is_ordered and not _has_word(name, _TIME_WORDS) else None


class Panel(NamedTuple):
    """The columns of a table of units over time: of each unit and each time there is one row."""

    unit: str
    time: str


def panel_of(table: pa.Table, targets: Collection[str]) -> Panel | None:
    """Return the columns of units and times of a table that has several rows of each unit; None for another table.

    Times are dates, or whole numbers that are named as times, such as a year. No two rows of a unit have the same time,
    and several units share a time.
    """
    for time in [*times_of_rows(table), *numbered_times(table)]:
        moments = _ranks(table.column(time))
        for field in table.schema:
            column = table.column(field.name)
            may_name = is_text(field.type) or pa.types.is_integer(field.type)
            if not may_name or field.name in (*targets, time) or column.null_count:
                continue
            units = _ranks(column)
            num_units, num_times = units.max(initial=0) + 1, moments.max(initial=0) + 1
            is_dense = LEAST_DENSITY * num_units * num_times <= table.num_rows
            is_repeated = 1 < num_units <= table.num_rows / 2 and 1 < num_times <= table.num_rows / 2
            if is_dense and is_repeated and len(np.unique(units * num_times + moments)) == table.num_rows:
                return Panel(field.name, time)
    return None


def numbered_times(table: pa.Table) -> list[str]:
    """Return the columns of whole numbers that are named as times, such as a year, and have no missing value."""
    fields = [field for field in table.schema if pa.types.is_integer(field.type)]
    names = [field.name for field in fields if _has_word(field.name, _TIME_WORDS)]
    return [name for name in names if not table.column(name).null_count and not _has_word(name, _FACT_WORDS)]


def is_date(table: pa.Table, name: str) -> bool:
    """Return whether a column is of dates or times."""
    kind = table.schema.field(name).type
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _ranks(column: pa.ChunkedArray) -> np.ndarray:
    """Return a number for each different value, int64 (rows,)."""
    ranks: np.ndarray = column.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    return ranks


def is_named_as_id(name: str) -> bool:
    """Return whether a word of a column's name says that its values name something."""
    return _has_word(name, _ID_WORDS) or _has_word(name, _ID_ENDINGS)


def is_named_as_time(name: str) -> bool:
    """Return whether a word of a column's name says that its values, which may be dates, are: `due_date`, `dt`."""
    return any(_has_word(name, words) for words in (_TIME_WORDS, _FACT_WORDS, _DATE_WORDS))


def times_of_rows(table: pa.Table) -> list[str]:
    """Return the columns of dates that may say when a row came, those in the order of the file first.

    A date of birth, of hiring or of expiry is none: rows of the future do not lie behind it.
    """
    times = [name for name in table.column_names if is_date(table, name)]
    times = [name for name in times if not table.column(name).null_count and not _has_word(name, _FACT_WORDS)]
    return sorted(times, key=lambda name: not is_ascending(table.column(name)))


def _has_word(name: str, pattern: re.Pattern[str]) -> bool:
    return any(pattern.fullmatch(word) for word in words_of(name))


def is_ascending(column: pa.ChunkedArray) -> bool:
    """Return whether no value is smaller than the one before it; of a column without missing values."""
    values = column.to_numpy()
    return bool(np.all(values[1:] >= values[:-1]))
