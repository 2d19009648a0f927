"""Request rows of every protocol, checked value by value and converted to the model's inputs without a data frame."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

from models.errors import DataError
from models.inference.portable import MOST_NUMBER, RowError, shown
from models.inference.predict import Feed
from models.inference.tensor_specs import TensorSpec

Columns = Mapping[str, Sequence[Any]]
Schema = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")
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


def refusing(read: Callable[P, T]) -> Callable[P, T]:
    """Have a function that reads rows raise `DataError` for the refusals of `models.inference.portable`."""

    @functools.wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except RowError as error:
            raise DataError(str(error)) from error

    return reading


def named(columns: Columns, name: str, other: str) -> str:
    """Return the name under which the only input column is present: its own name, or `other`, the name of the input."""
    return other if other in columns and name not in columns else name


def listed(names: Iterable[str], most: int = 8) -> str:
    """Return names for a message; of many names only the first few."""
    ordered = list(names)
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(repr(name[:60]) for name in ordered[:most]) + more
