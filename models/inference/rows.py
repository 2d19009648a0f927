"""Request rows of every protocol, checked value by value and converted to the model's inputs without a data frame."""

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
"""Types of JSON values that a numeric column accepts."""
MOST_NUMBER = 1e30
"""Models compute in float32, which ends at 3e38: with larger inputs a prediction may be no number."""
FINITE = {"minimum": -MOST_NUMBER, "maximum": MOST_NUMBER}
"""JSON Schema of the range of accepted numbers."""


@dataclass(slots=True)
class InputRows:
    """Rows as inputs of a graph.

    Args:
        feed: Arrays by the names of the model's inputs, the rows first.
        extra: Columns of the request that are no input, as JSON values; the log stores them. For a series: the columns
            of
            each window's last step, including inputs.
        numbers: The numbers of `feed` in one array (column, row), in the order of `Reader.numbers`; None if there is
            none.
    """

    feed: Feed
    extra: Columns = field(default_factory=dict)
    numbers: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.feed.values())))


class RowReader(Protocol):
    """Reads the rows of requests to one version. Every method raises `DataError` with place, value and cure.

    `inputs`: the tensors of a request. `numbers`: the columns of a record that hold numbers.
    """

    inputs: list[TensorSpec]
    numbers: list[str]

    def of_records(self, records: Sequence[Any]) -> InputRows:
        """Return rows from objects `[{"a": 1}, ...]`, each with every input column of the model."""
        ...

    def of_columns(self, columns: Columns) -> InputRows:
        """Return rows from columns by name, all of one length."""
        ...

    def of_array(self, values: Any) -> InputRows:
        """Return rows from nested lists without names."""
        ...

    def of_tensors(self, tensors: Mapping[str, np.ndarray]) -> InputRows:
        """Return rows from arrays by the names of `inputs`."""
        ...

    def item_schema(self) -> Schema | None:
        """Return the JSON Schema of one element of `of_array`; None if the reader accepts no arrays."""
        ...

    def record_schema(self) -> Schema:
        """Return the JSON Schema of one record; a record of a series is one step."""
        ...


def check_records(records: Sequence[Any]) -> None:
    """Refuse a value that is no list of objects.

    Raises:
        DataError: A row is no object, or there are no rows.
    """
    if not isinstance(records, list):
        raise DataError(f"got {shown(records)}, expected a list of rows")
    if not records:
        raise DataError("got no rows, expected one or more")
    for at, record in enumerate(records):
        if not isinstance(record, dict):
            raise DataError(f"row {at}: got {shown(record)}, expected an object of columns and values")


def columns_of_records(records: Sequence[Any], must: Collection[str] = ()) -> dict[str, list[Any]]:
    """Convert rows `[{"a": 1}, ...]` to columns; a column that a row lacks is missing there, unless it is in `must`.

    Raises:
        DataError: A row is no object or lacks a column of `must`, or there are no rows.
    """
    check_records(records)
    check_complete(records, must)
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}


def check_complete(records: Sequence[dict[str, Any]], names: Iterable[str], *, or_null: bool = True) -> None:
    """Refuse a record that lacks a column, so that it has the same meaning alone and among others.

    `or_null`: whether null is accepted for the column.

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
    """Refuse columns that are no lists of one length.

    Raises:
        DataError: Names the column.
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
    """Return the column with that name.

    Args:
        columns: By name.
        name: Name of the column.
        inputs: All input columns of the model; the error message does not suggest them as a misspelt name.

    Raises:
        DataError: There is no such column; names the nearest.
    """
    if name in columns:
        return columns[name]
    near = difflib.get_close_matches(name, [other for other in columns if other not in inputs], 1)
    hint = f"did you mean it by {near[0][:60]!r}?" if near else f"got {listed(columns) or 'none'}"
    raise DataError(f"the model takes {name!r}: {hint}")


def check_names(names: Iterable[str], inputs: Sequence[TensorSpec]) -> None:
    """Refuse tensors that the model does not take.

    Raises:
        DataError: Names one of them, and the model's inputs.
    """
    known = dict.fromkeys(port.name for port in inputs)
    for name in names:
        if name not in known:
            raise DataError(f"the model takes no {name[:60]!r}: its inputs are {listed(known)}")


def extra_columns(records: Sequence[dict[str, Any]], known: frozenset[str]) -> dict[str, list[Any]]:
    """Return the columns of records that are not in `known`."""
    names = dict.fromkeys(name for record in records for name in record if name not in known)
    return {name: [record.get(name) for record in records] for name in names}


def numbers_of(values: Sequence[Any], name: str, display_name: str = "row") -> np.ndarray:
    """Return a column of JSON numbers as float64 (rows,), NaN for null.

    Raises:
        DataError: A value is no number, or too large; `display_name` is the message's word for a row.
    """
    for at, value in enumerate(values):
        if type(value) not in NUMBERS:
            raise DataError(
                f"{display_name} {at}, column {name!r}: got {shown(value)}, expected a number, or null for missing"
            )
    return finite(np.array(values, np.float64), name)


def named(columns: Columns, name: str, other: str) -> str:
    """Return the name under which the only input column is present: its own name, or `other`, the name of the input."""
    return other if other in columns and name not in columns else name


def are_taken(values: np.ndarray) -> bool:
    """Return True if no value is larger than `MOST_NUMBER`; missing values pass.

    The sum of squares is a quick first check.
    """
    return bool(np.vdot(values, values) < MOST_NUMBER**2) or not (np.abs(values) > MOST_NUMBER).any()


def finite(values: np.ndarray, name: str) -> np.ndarray:
    """Return the same numbers, rows first.

    Raises:
        DataError: A number is infinite or larger than `MOST_NUMBER`.
    """
    if not are_taken(values):
        place = tuple(np.argwhere(np.abs(values) > MOST_NUMBER)[0])
        expected = f"a number between -{MOST_NUMBER:g} and {MOST_NUMBER:g}, or null for missing"
        raise DataError(f"row {int(place[0])}, {name!r}: got {float(values[place])!r}, expected {expected}")
    return values


def listed(names: Iterable[str], most: int = 8) -> str:
    """Return names for a message; of many names only the first few."""
    ordered = list(names)
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(repr(name[:60]) for name in ordered[:most]) + more


def shown(value: Any) -> str:
    """Return a short form of a caller's value for a message."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if value is None:
        return "null"
    text = repr(value[:40] if isinstance(value, str) else value)
    return text if len(text) <= 40 else f"{text[:37]}..."
