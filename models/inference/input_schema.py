"""The inputs of a version: rows of every protocol are checked value by value and become the inputs of its graph."""

from __future__ import annotations

import difflib
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from models.data.header import no_such_column
from models.errors import DataError, first_of
from models.inference.predict import Feed
from models.inference.row_values import MOST_NUMBER, RowError, shown
from models.inference.tensors import TensorSpec

if TYPE_CHECKING:
    import pyarrow as pa

Columns = Mapping[str, Sequence[Any]]
Schema = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")
FINITE = {"minimum": -MOST_NUMBER, "maximum": MOST_NUMBER}
"""JSON Schema of the range of accepted numbers."""
_OBJECT = frozenset((dict,))


@dataclass(slots=True)
class InputRows:
    """Rows as inputs of a graph.

    Args:
        feed: Arrays by the names of the model's inputs, the rows first.
        extra: Columns of the request that are no input, as JSON values; the log stores them. For a series: the columns
            of each window's last step, including inputs.
        numbers: The numbers of `feed` in one array (column, row), in the order of `InputSchema.numbers`; None if
            there is none.
    """

    feed: Feed
    extra: Columns = field(default_factory=dict)
    numbers: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.feed.values())))


def refusing(read: Callable[P, T]) -> Callable[P, T]:
    """Have a function that reads rows raise `DataError` for the refusals of `models.inference.row_values`."""

    @functools.wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except RowError as error:
            raise DataError(str(error)) from error

    return reading


class InputSchema(ABC):
    """What a version takes, and each way in which rows come: all raise `DataError` with place, value and cure.

    `columns`: the columns that a row must have. `keys`: those of them that may not be missing. `numbers`: those
    that hold numbers. `inputs`: the tensors of a request. `na_is_text`: the columns of a CSV in which NA is a text.
    `forms`: how the texts of columns are written, by column: a form of `strptime`, or `DECIMAL_COMMA`.
    """

    columns: list[str]
    keys: tuple[str, ...] = ()
    numbers: list[str]
    inputs: list[TensorSpec]
    na_is_text: Sequence[str] = ()
    forms: Mapping[str, str] = MappingProxyType({})

    def from_records(self, records: Sequence[Any]) -> InputRows:
        """Return rows from objects `[{"a": 1}, ...]`, each with every input column of the model."""
        check_records(records)
        check_complete(records, self.names_in(records[0]), self.keys)
        return self.from_columns(columns_of_records(records))

    @abstractmethod
    def from_columns(self, columns: Columns) -> InputRows:
        """Return rows from columns of JSON values by name, all of one length."""

    @abstractmethod
    def from_array(self, values: Any) -> InputRows:
        """Return rows from nested lists without names."""

    @abstractmethod
    def from_tensors(self, tensors: Mapping[str, np.ndarray]) -> InputRows:
        """Return rows from arrays by the names of `inputs`."""

    @abstractmethod
    def from_arrow(self, rows: pa.Table, first_row: int = 1, display_name: str = "rows") -> Feed:
        """Return the inputs of the graph from typed columns; of a series every window.

        Args:
            rows: The rows, with `columns`; steps of one series, oldest first.
            first_row: Number of the first row, for messages.
            display_name: Name of the rows in messages.
        """

    @abstractmethod
    def item_schema(self) -> Schema | None:
        """Return the JSON Schema of one element of `from_array`; None if the model accepts no arrays."""

    @abstractmethod
    def record_schema(self) -> Schema:
        """Return the JSON Schema of one record; a record of a series is one step."""

    def names_in(self, columns: Collection[str]) -> list[str]:
        """Return the names under which `columns` holds the input columns."""
        del columns
        return self.columns

    def check_header(self, names: Sequence[str], display_name: str) -> None:
        """Refuse rows that lack an input column of the model.

        Raises:
            DataError: Names the missing column and the column with the nearest name.
        """
        for name in self.columns:
            if name not in names:
                raise DataError(f"{display_name}: the model takes {name!r}: {no_such_column(name, list(names))}")


def check_records(records: Sequence[Any]) -> None:
    """Refuse a value that is no list of objects.

    Raises:
        DataError: A row is no object, or there are no rows.
    """
    if not isinstance(records, list):
        raise DataError(f"got {shown(records)}, expected a list of rows")
    if not records:
        raise DataError("got no rows, expected one or more")
    if _OBJECT.issuperset(map(type, records)):
        return
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict):
            raise DataError(f"row {number}: got {shown(record)}, expected an object of columns and values")


def check_complete(records: Sequence[dict[str, Any]], names: Sequence[str], keys: Sequence[str] = ()) -> None:
    """Refuse a record that lacks a column, so that it has the same meaning alone and among others.

    Args:
        records: The records.
        names: The columns.
        keys: Those of them that may not be missing.

    Raises:
        DataError: Names row and column.
    """
    for number, record in enumerate(records, 1):
        for name in names:
            try:
                column_of(record, name, names)
            except DataError as error:
                cure = "give it in each row" if name in keys else "give null for a missing value"
                raise DataError(f"row {number}: {error}: {cure}") from None


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
        longest = max(lengths.values())
        short = next(name for name, length in lengths.items() if length < longest)
        raise DataError(
            f"columns are of different lengths: {short[:60]!r} has {lengths[short]} values, another {longest}: "
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
    near = difflib.get_close_matches(name, [column for column in columns if column not in inputs], 1)
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


def columns_of_records(records: Sequence[dict[str, Any]], but: Collection[str] = ()) -> dict[str, list[Any]]:
    """Convert rows `[{"a": 1}, ...]` to columns, but for some; what a row lacks is missing in its column."""
    names = dict.fromkeys(name for record in records for name in record if name not in but)
    return {name: [record.get(name) for record in records] for name in names}


def listed(names: Iterable[str]) -> str:
    """Return names for a message; of many names only the first few."""
    return first_of((repr(name[:60]) for name in names), 8, ", ")
