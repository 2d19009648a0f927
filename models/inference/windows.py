"""Rows of a series: steps, oldest first, or whole windows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from models.data.known_future import ends_with_future, with_future
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
    check_names,
    column_of,
    refusing,
)
from models.inference.predict import Feed
from models.inference.row_values import RowError, shown
from models.inference.tensors import TensorSpec
from models.project_spec.frequency import ROWS
from models.project_spec.window import Window

if TYPE_CHECKING:
    import pyarrow as pa

INPUT = "series"


def known_window(preparation: Preparation) -> Window:
    """Return a model's window with its frequency; of a version from before there were any, every row is a step."""
    frequency = preparation.series.frequency if preparation.series else ROWS
    return preparation.required_window.model_copy(update={"frequency": frequency})


class WindowEnds(NamedTuple):
    """The inputs of steps in order (step, input), and the last step of each window (window,)."""

    steps: np.ndarray
    ends: np.ndarray


class SeriesSchema(InputSchema):
    """Takes windows, float64 (rows, length, feature) with NaN for missing.

    Records and columns are steps, oldest first; with the column of the times in any order, and of many series with the
    column that names the series. There is one prediction for each window, in the order of the steps that end them, so
    the first `length - 1` steps of a series have none, and the last ones neither if the model takes what is known of
    them beforehand. Arrays and tensors are windows, in which that is a column of its own for each horizon.

    Args:
        preparation: The model's schema, with a window.
    """

    def __init__(self, preparation: Preparation) -> None:
        self._preparation = preparation
        self._window = known_window(preparation)
        self._length = self._window.length
        self._time = preparation.series.time if preparation.series else None
        self._inputs = preparation.numeric
        self._aheads = preparation.aheads
        self.numbers = [part.name for part in self._inputs]
        self._parts = [(part.column, part.ahead) for part in self._inputs]
        self._read = preparation.step_columns
        key = self._window.series_key
        self.keys = (key,) if key else ()
        self.columns = [*self._read, *self.keys]
        self.inputs = [TensorSpec(INPUT, "FP64", (-1, self._length, len(self.numbers)))]

    @refusing
    def from_columns(self, columns: Columns) -> InputRows:
        """Return rows from steps as columns."""
        check_columns(columns)
        if set(columns) == {INPUT} and INPUT not in self.numbers:
            return self.from_array(columns[INPUT])
        written = row_values.columns_written(columns, self.forms)
        features = {name: column_of(written, name, self._read) for name in self._read}
        steps = np.stack([row_values.numbers(values, name, "step") for name, values in features.items()], axis=1)
        windows, last = self._cut(written, steps)
        extra = {name: [values[row] for row in last] for name, values in columns.items()}
        return InputRows({INPUT: np.ascontiguousarray(windows)}, extra)

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
        windows = row_values.checked_windows(values, self._length, self._parts)
        last = {name: _plain(windows[:, -1, index]) for index, name in enumerate(self.numbers)}
        return InputRows({INPUT: windows}, last)

    def from_arrow(self, rows: pa.Table, first_row: int = 1, display_name: str = "rows") -> Feed:
        """Return every window of the steps."""
        from models.inference.arrow_columns import columns

        steps = np.stack(list(columns(rows, self._preparation, first_row, display_name).values()), axis=1)
        try:
            return {INPUT: self._of_one_series(steps)[0]}
        except (DataError, RowError) as error:
            raise DataError(f"{display_name}: {error}") from error

    def item_schema(self) -> Schema | None:
        """Return the JSON Schema of a window."""
        step = _list_of({"type": ["number", "boolean", "null"], **FINITE}, len(self.numbers))
        return _list_of(step, self._length)

    def record_schema(self) -> Schema:
        """Return the JSON Schema of one step: an object with each feature."""
        properties: Schema = {name: {"type": ["number", "boolean", "null"], **FINITE} for name in self._read}
        if self._window.series_key:
            properties[self._window.series_key] = {"type": ["string", "number"]}
        return {"type": "object", "properties": properties, "required": list(properties)}

    def _cut(self, columns: Columns, steps: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """Return the windows of a request's steps, and the step (window,) with which each of them ends."""
        key, num_steps = self._window.series_key, len(steps)
        if key is None and self._time not in columns:
            windows, last = self._of_one_series(steps)
            return windows, last.tolist()
        from models.data.series import series_rows, window_ends  # pyarrow: not in servers that need no times

        window, time = self._window, self._time or "time"
        if time not in columns:
            window = window.model_copy(update={"frequency": ROWS})
        times = columns.get(time, range(num_steps))
        named: dict[str, Any] = (
            {key: row_values.texts([_text(value) for value in column_of(columns, key)], key)} if key else {}
        )
        rows = series_rows(_table({time: times, **named}), window, time)
        ends = window_ends(rows, self._length)
        ends = ends[np.argsort(rows.positions[ends])]
        with_ahead = self.with_future(
            steps, rows.steps, rows.positions, ends, lambda index: f"step {rows.positions[index] + 1}"
        )
        last = rows.positions[with_ahead.ends].tolist()
        return self._windows(with_ahead.steps)[with_ahead.ends - self._length + 1], last

    def _of_one_series(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return every window of steps without a gap, and the steps (window,) that end them."""
        every = np.arange(len(steps))
        with_ahead = self.with_future(steps, every, every, every[self._length - 1 :], lambda index: f"step {index + 1}")
        return self._windows(with_ahead.steps)[with_ahead.ends - self._length + 1], with_ahead.ends

    def with_future(
        self,
        steps: np.ndarray,
        before: np.ndarray,
        positions: np.ndarray,
        ends: np.ndarray,
        place: Callable[[int], str],
    ) -> WindowEnds:
        """Return the inputs of the steps in order, and the ends of the windows of which all is known beforehand.

        Args:
            steps: The columns of the data, as they came (step, column).
            before: How many steps of the same series lie directly before each in order, without a gap (step,).
            positions: Where each step in order came; negative for one that was inserted into a gap (step,).
            ends: The last step of each window, in order.
            place: Returns the name of a step in order, for messages.

        Raises:
            DataError: No window has the steps after it that the model takes.
            RowError: One lacks a value that is known beforehand.
        """
        ordered = np.where((positions < 0)[:, None], np.nan, steps[positions])
        if not self._aheads or not len(ends):
            return WindowEnds(ordered, ends)
        ends = ends_with_future(ends, before, positions, self._length, self._aheads)
        columns = dict(zip(self._read, ordered.T, strict=True))
        with_ahead = with_future(columns, before, self._inputs)
        row_values.check_known(with_ahead[ends], self._parts, lambda index: place(int(ends[index])))
        return WindowEnds(with_ahead, ends)

    def feed(self, steps: np.ndarray, ends: np.ndarray) -> Feed:
        """Return the windows of steps (step, input) that end with some of them, as the inputs of the graph."""
        return {INPUT: np.ascontiguousarray(self._windows(steps)[ends - self._length + 1])}

    def _windows(self, steps: np.ndarray) -> np.ndarray:
        """Return every window of steps (step, feature), as a view (window, length, feature)."""
        if len(steps) < self._length:
            raise DataError(f"got {len(steps)} steps, expected at least {self._length}: the model looks at so many")
        return np.lib.stride_tricks.sliding_window_view(steps, self._length, axis=0).swapaxes(1, 2)

    def _dimensions(self) -> str:
        return f"rows, {self._length}, {len(self.numbers)}"


def _table(columns: Columns) -> pa.Table:
    import pyarrow as pa

    try:
        return pa.table({name: pa.array(values) for name, values in columns.items()})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"the times of the steps are not of one kind ({reason}): send dates, or numbers") from error


def _text(value: Any) -> Any:
    return (
        row_values.number_text(value) if isinstance(value, float) else str(value) if isinstance(value, int) else value
    )


def _list_of(element: Schema, count: int) -> Schema:
    return {"type": "array", "items": element, "minItems": count, "maxItems": count}


def _is_numeric(values: np.ndarray) -> bool:
    return row_values.NUMBERS.issuperset(map(type, values.ravel().tolist()))


def _plain(values: np.ndarray) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]
