"""Rows of a table: a number or a text for each input column of the model."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from models.data.preparation import Preparation
from models.errors import DataError
from models.inference import row_values
from models.inference.input_schema import (
    FINITE,
    Columns,
    InputRows,
    InputSchema,
    Schema,
    check_columns,
    check_complete,
    check_names,
    check_records,
    column_of,
    columns_of_records,
    refusing,
)
from models.inference.predict import Feed
from models.inference.row_values import RowError, categories, shown
from models.inference.tensors import TensorSpec
from models.inputs.record import CategoryRecord, Form

if TYPE_CHECKING:
    import pyarrow as pa


_TEXT = frozenset((str,))
PIECE_ITEMS = 1 << 13
"""Rows, or items of a list, that are read, written or freed at once, 1 to 3 ms: of more, other threads run between the
pieces, for all at once hold the GIL for 50 ms."""
TIME: Schema = {
    "type": ["string", "number", "null"],
    "pattern": r"^([0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])(T([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?Z?)?)?$",
    "minimum": row_values.EARLIEST_S,
    "exclusiveMaximum": row_values.LATEST_S,
    "description": "A time: ISO 8601, UTC without a zone, or seconds since 1970.",
}
"""JSON Schema of the plainest forms of a time; the other forms of ISO 8601 are accepted too."""
TextReader = Callable[[Sequence[Any], str], np.ndarray]
"""Returns texts as the graph takes them from the values of a column and its name."""


class TableSchema(InputSchema):
    """Takes rows of a table. A record of plain values is read in a few calls for all its columns together.

    Args:
        preparation: The model's schema.
    """

    def __init__(self, preparation: Preparation) -> None:
        self.inputs = [TensorSpec(name, "FP64", (-1,)) for name in preparation.number_columns]
        self.inputs += [TensorSpec(name, "BYTES", (-1,)) for name in preparation.text_columns]
        self.numbers = preparation.number_columns
        self._preparation = preparation
        self._parts = {part.name: part for part in preparation.column_inputs}
        self._times = {name for name, part in self._parts.items() if part.form == "time"}
        self._text_readers = {
            name: _READERS[self._parts[name].form](self._parts[name]) for name in preparation.text_columns
        }
        self.columns = names = [port.name for port in self.inputs]
        self._values = itemgetter(*names) if len(names) > 1 else lambda record: (record[names[0]],)
        self._names = frozenset(names)
        self._known = self._names | frozenset(preparation.target.columns)

    def from_records(self, records: Sequence[Any]) -> InputRows:
        """Return rows from objects `[{"a": 1}, ...]`."""
        check_records(records)
        try:
            columns = self._columns(records)
        except KeyError:
            check_complete(records, self.columns)
            raise
        has_more = max(map(len, records)) > len(self.columns)
        return self._rows(columns, columns_of_records(records, self._known) if has_more else {})

    def from_columns(self, columns: Columns) -> InputRows:
        """Return rows from columns by name."""
        check_columns(columns)
        extra = {name: values for name, values in columns.items() if name not in self._known}
        return self._rows([column_of(columns, name, self._names) for name in self.columns], extra)

    def from_array(self, values: Any) -> InputRows:
        """Refuse arrays, because a table's columns have names."""
        raise DataError(
            f"got {shown(values)} without names: this model takes columns by name: give objects "
            '({"column": value}), or `dataframe_split` with `columns` and `data`'
        )

    @refusing
    def from_tensors(self, tensors: Mapping[str, np.ndarray]) -> InputRows:
        """Return rows from one tensor (rows,) for each column; the shape (rows, 1) is accepted too."""
        check_names(tensors, self.inputs)
        columns = {port.name: _flat(column_of(tensors, port.name, self._names), port.name) for port in self.inputs}
        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1:
            raise DataError(f"inputs have {sorted(lengths)} rows: expected as many in each")
        if not lengths - {0}:
            raise DataError("got no rows, expected one or more")
        numbers = self._doubles(columns, lengths.pop())
        feed = dict(zip(self.numbers, numbers, strict=True))
        texts = {name: self._with_time(columns[name].tolist(), name) for name in self._text_readers}
        feed |= {name: read(texts[name], name) for name, read in self._text_readers.items()}
        return InputRows(feed, numbers=numbers)

    def from_arrow(self, rows: pa.Table, first_row: int = 1, display_name: str = "rows") -> Feed:
        """Return numbers as float64 with NaN, categories as texts with ""."""
        from models.inference.arrow_columns import columns

        return columns(rows, self._preparation, first_row, display_name)

    def item_schema(self) -> Schema | None:
        """Return None, because a table's columns have names."""
        return None

    def record_schema(self) -> Schema:
        """Return the JSON Schema of an object with each column."""
        properties = {name: _SCHEMAS[self._parts[name].form](self._parts[name]) for name in self.columns}
        return {"type": "object", "properties": properties, "required": list(properties)}

    def _columns(self, records: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the values of each of `self.columns`."""
        # lists: CPython leaks 190 bytes where an argument `*iterator` raises beside one by name (3.11.7)
        if len(records) <= PIECE_ITEMS:
            return list(zip(*[*map(self._values, records)], strict=True))
        starts = range(0, len(records), PIECE_ITEMS)
        rows = ([*map(self._values, records[start : start + PIECE_ITEMS])] for start in starts)
        pieces = [zip(*piece, strict=True) for piece in rows]
        return [list(chain(*parts)) for parts in zip(*pieces, strict=True)]

    def _doubles(self, columns: Mapping[str, np.ndarray], num_rows: int) -> np.ndarray:
        """Return all numbers in one array (column, row), so that one call checks them."""
        numbers = np.empty((len(self.numbers), num_rows))
        for index, name in enumerate(self.numbers):
            if name in self._times or name in self.forms:
                numbers[index] = self._with_time(columns[name].tolist(), name)
                continue
            if columns[name].dtype == object:
                raise DataError(f"input {name!r}: got BYTES, expected FP64, or another type of numbers")
            numbers[index] = columns[name]
        if not row_values.are_in_range(numbers):
            for values, name in zip(numbers, self.numbers, strict=True):
                row_values.in_range(values, name)
        return numbers

    def _rows(self, columns: Sequence[Sequence[Any]], extra: Columns) -> InputRows:
        """Return rows from the values of each of `self.columns`; one call converts all numbers together."""
        count = len(self.numbers)
        try:
            if self._times or self.forms:
                columns = self._with_times(columns)
            numbers = self._numbers(columns[:count], len(columns[0]))
            feed = dict(zip(self.numbers, numbers, strict=True))
            for (name, read), column in zip(self._text_readers.items(), columns[count:], strict=True):
                feed[name] = read(column, name)
        except RowError as error:
            raise DataError(str(error)) from error
        return InputRows(feed, extra, numbers)

    def _numbers(self, columns: Sequence[Sequence[Any]], num_rows: int) -> np.ndarray:
        """Return numbers (column, row); one call converts all together unless they are many. Raises `RowError`."""
        if num_rows <= PIECE_ITEMS:
            numbers = _float64([*chain.from_iterable(columns)])
            if numbers is not None and row_values.are_in_range(numbers):
                return numbers.reshape(len(columns), num_rows)
        named = zip(columns, self.numbers, strict=True)
        return np.array([row_values.numbers(values, name) for values, name in named]).reshape(len(columns), num_rows)

    def _with_times(self, columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Return the values of each of `self.columns`, dates as times and times as seconds. Raises `RowError`."""
        return [self._with_time(values, name) for values, name in zip(columns, self.columns, strict=True)]

    def _with_time(self, values: Sequence[Any], name: str) -> Sequence[Any]:
        if name in self.forms:
            values = row_values.written_values(values, name, self.forms[name])
        return row_values.moments(values, name).tolist() if name in self._times else values


def _float64(values: list[Any]) -> np.ndarray | None:
    """Return numbers, NaN for missing; None if one is no number, or is beyond float64.

    Cost: a fifth of that of numpy's conversion after a check of the types.
    """
    layout = f"{len(values)}d"
    try:
        return np.frombuffer(struct.pack(layout, *values))
    except struct.error:
        values = [math.nan if value is None else value for value in values]
    with contextlib.suppress(struct.error):
        return np.frombuffer(struct.pack(layout, *values))
    return None


def _flat(values: np.ndarray, name: str) -> np.ndarray:
    if values.ndim == 1:
        return values
    if values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    raise DataError(f"input {name!r}: got shape {list(values.shape)}, expected [rows]")


def _category_reader(part: CategoryRecord) -> TextReader:
    dtype = part.dtype

    def read(values: Sequence[Any], name: str) -> np.ndarray:
        is_plain = dtype == "string" and _TEXT.issuperset(map(type, values))
        return np.array(values, object) if is_plain else categories(values, name, dtype)

    return read


def _category_schema(part: CategoryRecord) -> Schema:
    return {"type": ["string", "number" if part.dtype == "integer" else "integer", "boolean", "null"]}


_READERS: dict[Form, Callable[[Any], TextReader]] = {"category": _category_reader, "text": lambda _: row_values.texts}
_SCHEMAS: dict[Form, Callable[[Any], Schema]] = {
    "number": lambda _: {"type": ["number", "boolean", "null"], **FINITE},
    "time": lambda _: TIME,
    "category": _category_schema,
    "text": lambda _: {"type": ["string", "null"]},
}
"""JSON Schema of a value, by the form in which rows give it."""
