"""Rows as a version takes them, whatever protocol brought them: checked value by value, without a data frame."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from models.errors import DataError
from models.inference.predict import Feed
from models.inference.tensor_specs import TensorSpec

Columns = Mapping[str, Sequence[Any]]
Schema = dict[str, Any]
NUMBERS = frozenset((float, int, bool, type(None)))
"""Types of JSON's values that a column of numbers takes."""
MOST_NUMBER = 1e30
"""Models compute in float32, which ends at 3e38: past this their answer may be no number."""
FINITE = {"minimum": -MOST_NUMBER, "maximum": MOST_NUMBER}
"""JSON Schema of the numbers that are taken."""


@dataclass(slots=True)
class InputRows:
    """Rows as a graph takes them.

    Args:
        feed: Arrays by the names of the model's inputs, the rows first.
        extra: Columns that were given and are no input, as JSON has them: the log keeps them. Of a series those of
            the step that each window ends with, inputs too.
        numbers: The numbers of `feed` in one array (column, row), in the order of `Reader.numbers`, where there is one.
    """

    feed: Feed
    extra: Columns = field(default_factory=dict)
    numbers: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.feed.values())))


class RowReader(Protocol):
    """Reads what callers send for one version. Every way in raises `DataError`: where, what was got, the cure.

    `inputs`: what callers may send as tensors. `numbers`: the columns of a record that hold numbers.
    """

    inputs: list[TensorSpec]
    numbers: list[str]

    def of_records(self, records: Sequence[Any]) -> InputRows:
        """Rows from objects `[{"a": 1}, ...]`, each with every column that the model takes."""
        ...

    def of_columns(self, columns: Columns) -> InputRows:
        """Rows from columns by name, all of one length."""
        ...

    def of_array(self, values: Any) -> InputRows:
        """Rows from nested lists without names."""
        ...

    def of_tensors(self, tensors: Mapping[str, np.ndarray]) -> InputRows:
        """Rows from arrays by the names of `inputs`."""
        ...

    def item_schema(self) -> Schema | None:
        """The JSON Schema of one element of `of_array`; None if it takes none."""
        ...

    def record_schema(self) -> Schema:
        """The JSON Schema of one record; a record of a series is one step."""
        ...


def check_records(records: Sequence[Any]) -> None:
    """Say no to what is no list of objects.

    Raises:
        DataError: A row is not an object, or there are no rows.
    """
    if not isinstance(records, list):
        raise DataError(f"got {shown(records)}, expected a list of rows")
    if not records:
        raise DataError("got no rows, expected one or more")
    for at, record in enumerate(records):
        if not isinstance(record, dict):
            raise DataError(f"row {at}: got {shown(record)}, expected an object of columns and values")


def columns_of_records(records: Sequence[Any], must: Collection[str] = ()) -> dict[str, list[Any]]:
    """Rows `[{"a": 1}, ...]` as columns; what a row lacks is missing, but for what it `must` have.

    Raises:
        DataError: A row is not an object or lacks a column, or there are no rows.
    """
    check_records(records)
    check_complete(records, must)
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}


def check_complete(records: Sequence[dict[str, Any]], names: Iterable[str], *, or_null: bool = True) -> None:
    """Say no to a record that lacks a column: it means the same alone and among others, and nothing is guessed.

    `or_null`: whether null would do.

    Raises:
        DataError: Names row and column.
    """
    names = list(names)
    for at, record in enumerate(records):
        for name in names:
            try:
                column_of(record, name, names)
            except DataError as error:
                cure = "; give null for a missing value" if or_null else ""
                raise DataError(f"row {at}: {error}{cure}") from None


def check_columns(columns: Columns) -> None:
    """Say no to what are no columns of one length.

    Raises:
        DataError: Says which.
    """
    if not columns:
        raise DataError("got no columns, expected those that the model takes")
    for name, values in columns.items():
        if not isinstance(values, list):
            raise DataError(f"column {name[:60]!r}: got {shown(values)}, expected a list: a value for each row")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        most = max(lengths.values())
        short = next(name for name, length in lengths.items() if length < most)
        raise DataError(
            f"columns are of different lengths: {short[:60]!r} has {lengths[short]} values, another {most}: "
            "give a value, or null, for every row in each"
        )
    if not max(lengths.values()):
        raise DataError("got no rows, expected one or more")


def column_of(columns: Mapping[str, Any], name: str, inputs: Collection[str] = ()) -> Any:
    """The column of that name.

    Args:
        columns: By name.
        name: Which.
        inputs: All columns that the model takes: a misspelt name is never one of them.

    Raises:
        DataError: There is none; names the nearest.
    """
    if name in columns:
        return columns[name]
    near = difflib.get_close_matches(name, [other for other in columns if other not in inputs], 1)
    hint = f"did you mean it by {near[0][:60]!r}?" if near else f"got {listed(columns) or 'none'}"
    raise DataError(f"the model takes {name!r}: {hint}")


def check_names(names: Iterable[str], inputs: Sequence[TensorSpec]) -> None:
    """Say no to tensors that the model does not take.

    Raises:
        DataError: Names one, and those that it takes.
    """
    known = dict.fromkeys(port.name for port in inputs)
    for name in names:
        if name not in known:
            raise DataError(f"the model takes no {name[:60]!r}: its inputs are {listed(known)}")


def extra_columns(records: Sequence[dict[str, Any]], known: frozenset[str]) -> dict[str, list[Any]]:
    """The columns of records that are none of the known ones."""
    names = dict.fromkeys(name for record in records for name in record if name not in known)
    return {name: [record.get(name) for record in records] for name in names}


def numbers_of(values: Sequence[Any], name: str, display_name: str = "row") -> np.ndarray:
    """A column of JSON's numbers as float64 (rows,), NaN for null.

    Raises:
        DataError: A value is not a number, or too large; the message calls a row `display_name`.
    """
    for at, value in enumerate(values):
        if type(value) not in NUMBERS:
            raise DataError(
                f"{display_name} {at}, column {name!r}: got {shown(value)}, expected a number, or null for missing"
            )
    return finite(np.array(values, np.float64), name)


def named(columns: Columns, name: str, other: str) -> str:
    """The name of a model's only input here: its own name, or else `other`."""
    return other if other in columns and name not in columns else name


def are_taken(values: np.ndarray) -> bool:
    """Whether no value is larger than `MOST_NUMBER`; missing values are fine. A small sum of squares proves it."""
    return bool(np.vdot(values, values) < MOST_NUMBER**2) or not (np.abs(values) > MOST_NUMBER).any()


def finite(values: np.ndarray, name: str) -> np.ndarray:
    """The same numbers, rows first.

    Raises:
        DataError: One is infinite or larger than `MOST_NUMBER`.
    """
    if not are_taken(values):
        place = tuple(np.argwhere(np.abs(values) > MOST_NUMBER)[0])
        expected = f"a number between -{MOST_NUMBER:g} and {MOST_NUMBER:g}, or null for missing"
        raise DataError(f"row {int(place[0])}, {name!r}: got {float(values[place])!r}, expected {expected}")
    return values


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names for a message, the first few of many."""
    ordered = list(names)
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(repr(name[:60]) for name in ordered[:most]) + more


def shown(value: Any) -> str:
    """A caller's value for a message, short."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if value is None:
        return "null"
    text = repr(value[:40] if isinstance(value, str) else value)
    return text if len(text) <= 40 else f"{text[:37]}..."
