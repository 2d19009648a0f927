"""Rows of a series: steps, oldest first, or whole windows of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from models.data.preparation import Preparation
from models.errors import DataError
from models.inference import portable
from models.inference.input_schema import (
    FINITE,
    Columns,
    InputRows,
    InputSchema,
    Schema,
    check_columns,
    check_names,
    column_of,
    refusing,
)
from models.inference.portable import shown
from models.inference.predict import Feed
from models.inference.tensors import TensorSpec

if TYPE_CHECKING:
    import pyarrow as pa

INPUT = "series"


class SeriesSchema(InputSchema):
    """Takes windows, float64 (rows, length, feature) with NaN for missing.

    Records and columns are the steps of one series. There is one prediction for each window, so the first `length - 1`
    steps have none. Arrays and tensors are windows.

    Args:
        preparation: The model's schema, with a window.
    """

    def __init__(self, preparation: Preparation) -> None:
        assert preparation.window is not None
        self._preparation = preparation
        self._length = preparation.window.length
        self.columns = self.numbers = [part.name for part in preparation.numeric]
        self.inputs = [TensorSpec(INPUT, "FP64", (-1, self._length, len(self.numbers)))]

    @refusing
    def from_columns(self, columns: Columns) -> InputRows:
        """Return rows from steps as columns."""
        check_columns(columns)
        if set(columns) == {INPUT} and INPUT not in self.numbers:
            return self.from_array(columns[INPUT])
        features = {name: column_of(columns, name, self.numbers) for name in self.numbers}
        steps = np.stack([portable.numbers(values, name, "step") for name, values in features.items()], axis=1)
        extra = {name: values[self._length - 1 :] for name, values in columns.items()}
        return InputRows({INPUT: np.ascontiguousarray(self._windows(steps))}, extra)

    def from_array(self, values: Any) -> InputRows:
        """Return rows from windows as nested lists."""
        try:
            windows = np.array(values)
        except ValueError:
            windows = np.array("ragged")
        if windows.dtype == object and _is_numeric(windows):  # null among the numbers
            windows = windows.astype(np.float64)
        if windows.dtype.kind not in "fiub":
            raise DataError(f"got {shown(values)} that is no array of numbers, expected [{self._dimensions()}]")
        return self.from_tensors({INPUT: windows})

    @refusing
    def from_tensors(self, tensors: Mapping[str, np.ndarray]) -> InputRows:
        """Return rows from the tensor `series`."""
        check_names(tensors, self.inputs)
        values = column_of(tensors, INPUT)
        if values.shape[1:] != self.inputs[0].shape[1:] or not len(values):
            raise DataError(f"input 'series': got shape {list(values.shape)}, expected [{self._dimensions()}]")
        if values.dtype == object:
            raise DataError("input 'series': got BYTES, expected FP64, or another type of numbers")
        windows = portable.in_range(np.ascontiguousarray(values, np.float64), INPUT)
        last = {name: _plain(windows[:, -1, at]) for at, name in enumerate(self.numbers)}
        return InputRows({INPUT: windows}, last)

    def from_arrow(self, rows: pa.Table, first_row: int = 0, display_name: str = "rows") -> Feed:
        """Return every window of the steps."""
        from models.inference.arrow_columns import columns

        steps = np.stack(list(columns(rows, self._preparation, first_row, display_name).values()), axis=1)
        try:
            return {INPUT: self._windows(steps)}
        except DataError as error:
            raise DataError(f"{display_name}: {error}") from error

    def item_schema(self) -> Schema | None:
        """Return the JSON Schema of a window."""
        step = _list_of({"type": ["number", "boolean", "null"], **FINITE}, len(self.numbers))
        return _list_of(step, self._length)

    def record_schema(self) -> Schema:
        """Return the JSON Schema of one step: an object with each feature."""
        properties = {name: {"type": ["number", "boolean", "null"], **FINITE} for name in self.numbers}
        return {"type": "object", "properties": properties, "required": list(properties)}

    def _windows(self, steps: np.ndarray) -> np.ndarray:
        """Return every window of steps (step, feature), as a view (window, length, feature)."""
        if len(steps) < self._length:
            raise DataError(f"got {len(steps)} steps, expected at least {self._length}: the model looks at so many")
        return np.lib.stride_tricks.sliding_window_view(steps, self._length, axis=0).swapaxes(1, 2)

    def _dimensions(self) -> str:
        return f"rows, {self._length}, {len(self.numbers)}"


def _list_of(item: Schema, count: int) -> Schema:
    return {"type": "array", "items": item, "minItems": count, "maxItems": count}


def _is_numeric(values: np.ndarray) -> bool:
    return portable.NUMBERS.issuperset(map(type, values.ravel().tolist()))


def _plain(values: np.ndarray) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]
