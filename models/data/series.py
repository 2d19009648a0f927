"""Series: rows in the order of series and time, their steps, and the examples that windows cut from them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from models.data.header import no_such_column
from models.data.known_future import future_inputs, moved
from models.data.split import times
from models.errors import DataError
from models.identity.hashing import missing
from models.inputs.types import as_float64, as_text, is_number
from models.metrics.outputs import horizon_name
from models.project_spec.blocks import Data
from models.project_spec.frequency import FORMS, ROWS, Frequency, parse_frequency
from models.project_spec.window import Window

NO_SPLIT = -1
_DAY = 86_400_000_000
_LEAST_MONTH = 28 * _DAY
_WEEK_WITHOUT_WEEKEND = 5


class SeriesRows(NamedTuple):
    """The rows of one or many series, series by series and oldest first.

    Attributes:
        table: The rows; inserted ones hold nothing but their time and their series.
        positions: Row in the table that was read, int64 (row,); inserted rows are -1, -2 and so on.
        series: Number of the series, int64 (row,), ascending.
        steps: How many steps of the series lie directly before the row, without a gap, int64 (row,).
        frequency: Distance between two steps.
        num_gaps: How many times steps are missing; after an insertion 0.
        num_missing: How many steps are missing in all; after an insertion 0.
        num_inserted: How many rows were inserted.
    """

    table: pa.Table
    positions: np.ndarray
    series: np.ndarray
    steps: np.ndarray
    frequency: Frequency
    num_gaps: int = 0
    num_missing: int = 0
    num_inserted: int = 0


def series_rows(table: pa.Table, window: Window, time_column: str) -> SeriesRows:
    """Return the rows in order, with their steps; gaps are refused, filled or break a series, as `window.gaps` says.

    Args:
        table: Rows of one series, or of many if `window.series_key` is set, in any order.
        window: The spec's, or a model's, whose frequency is known.
        time_column: Name of the column that gives the order.

    Raises:
        DataError: Two rows of a series have the same time, a time lies off the steps, no frequency can be inferred, or
            steps are missing and `window.gaps` is `refuse`.
    """
    moments, series = _moments(table, time_column), _series_of(table, window.series_key)
    order = np.lexsort((moments, series))
    table, moments, series = table.take(order), moments[order], series[order]
    place = StepNames(table, time_column, window.series_key)
    place.check_distinct(moments, series)
    is_same = np.diff(series) == 0
    frequency = parse_frequency(window.frequency) if window.frequency else _inferred(moments, is_same, place)
    distances = np.where(is_same, _distances(moments, is_same, frequency, place), 0)
    gaps = np.flatnonzero(distances > 1)
    num_missing = int((distances[gaps] - 1).sum())
    if len(gaps) and window.gaps == "refuse":
        raise DataError(place.gap(gaps, num_missing, frequency))
    if len(gaps) and window.gaps == "fill":
        return _filled(SeriesRows(table, order, series, distances, frequency), moments, distances, place)
    return SeriesRows(table, order, series, _steps(distances), frequency, len(gaps), num_missing)


def example_splits(codes: np.ndarray, steps: np.ndarray, table: pa.Table, data: Data) -> np.ndarray:
    """Return the split of the example that is each row; -1 if there is none.

    There is none where its window is incomplete, it is off the stride, a target is missing, or its targets at several
    horizons are not of one split.

    Args:
        codes: The split of each row.
        steps: The steps directly before each row (`SeriesRows.steps`).
        table: The rows.
        data: The spec's data block.

    Raises:
        DataError: No series is as long as one example without a gap.
    """
    window = data.window
    assert window is not None  # the spec of a series has one
    first = first_target(window)
    if first > steps.max(initial=-1):
        last = window.last_horizon
        raise DataError(
            f"data.window: one example spans {first + 1} steps (length {window.length}, horizon {last}), but "
            f"the longest stretch without a gap has {steps.max(initial=-1) + 1}: give more data, or a shorter window"
        )
    usable = (steps >= first) & ((steps - first) % window.stride == 0)
    lacks = missing(table.column(data.targets[0]))
    for ahead in window.horizons:
        target = rows_before(len(codes), window.last_horizon - ahead)
        usable &= ~lacks[target] & (codes[target] == codes)
    examples: np.ndarray = np.where(usable, codes, NO_SPLIT).astype(np.int8)
    return examples


def with_horizons(rows: pa.Table, steps: np.ndarray, window: Window, target: str) -> pa.Table:
    """Return rows with the true value of each horizon of the example that is a row, NaN where its series has none.

    Args:
        rows: The rows in order.
        steps: The steps directly before each row (`SeriesRows.steps`).
        window: The spec's.
        target: Name of the target column.

    Raises:
        DataError: A column has the name of an output.
    """
    if len(window.horizons) == 1:
        return rows
    values = as_float64(rows.column(target), target)
    for ahead in window.horizons:
        back, name = window.last_horizon - ahead, horizon_name(ahead)
        if name in rows.column_names:
            raise DataError(
                f"data.window.horizon: the predictions are named {name} and so on, and so is a column of the data: "
                "rename it in the source, or, if it is an input alone, drop it with `features.drop`"
            )
        rows = rows.append_column(name, pa.array(moved(values, steps, -back)))
    return rows


def with_known_future(rows: pa.Table, steps: np.ndarray, window: Window, seen: np.ndarray) -> pa.Table:
    """Return rows with what is known beforehand of each horizon: `promo_h7` is the `promo` of the 7th step later.

    Args:
        rows: The rows in order.
        steps: The steps directly before each row (`SeriesRows.steps`).
        window: The spec's.
        seen: Whether each row is one of training, bool (row,).

    Raises:
        DataError: A known column has no value in training, or a column has the name of such an input.
    """
    for part in future_inputs(window):
        if part.name in rows.column_names:
            raise DataError(
                f"data.window.known_future: the input {part.name!r} of {part.column!r} has the name of a column of the "
                "data: rename that one in the source, or, if it is an input alone, drop it with `features.drop`"
            )
        values = as_float64(rows.column(part.column), part.column)
        if np.isnan(values[seen]).all():
            raise DataError(
                f"data.window.known_future: column {part.column!r} has no value in the training rows: put it right in "
                "the source, or take it out of the list"
            )
        rows = rows.append_column(part.name, pa.array(moved(values, steps, part.ahead)))
    return rows


def rows_before(num_rows: int, back: int) -> np.ndarray:
    """Return the row `back` rows before each; of the first ones, which have none, row 0: int64 (row,)."""
    return np.maximum(np.arange(num_rows) - back, 0)


def window_ends(rows: SeriesRows, length: int) -> np.ndarray:
    """Return the rows that are the last step of a whole window of `length` steps, int64 (window,).

    Raises:
        DataError: No stretch without a gap is so long.
    """
    ends = np.flatnonzero((rows.steps >= length - 1) & (rows.positions >= 0))
    if not len(ends):
        raise DataError(
            f"the longest stretch without a gap has {int(rows.steps.max(initial=-1)) + 1} steps, expected at least "
            f"{length}: the model looks at so many"
        )
    return ends


def first_target(window: Window) -> int:
    """Return the first row that can be an example: a whole window and the farthest horizon lie before it."""
    return window.length - 1 + window.last_horizon


class StepNames(NamedTuple):
    """The names of rows in order, for messages: their time and series."""

    table: pa.Table
    column: str
    key: str | None

    def at(self, row: int) -> str:
        """Return the time of a row, and its series if there are several."""
        moment = self.table.column(self.column)[row].as_py()
        return f"{moment}" + (f" of {self.key} {self.table.column(self.key)[row].as_py()!r}" if self.key else "")

    def check_distinct(self, moments: np.ndarray, series: np.ndarray) -> None:
        """Refuse two rows of a series with the same time."""
        repeated = np.flatnonzero((np.diff(moments) == 0) & (np.diff(series) == 0))
        if len(repeated):
            cure = (
                "aggregate or choose one in the source"
                if self.key
                else "a series has one row for each step; of several series name their column in "
                "data.window.series_key, else aggregate or choose one in the source"
            )
            raise DataError(
                f"data.split.column {self.column!r}: {len(repeated)} rows share their time with another, first "
                f"{self.at(int(repeated[0]))}, expected one row for each step: {cure}"
            )

    def gap(self, gaps: np.ndarray, num_missing: int, frequency: Frequency) -> str:
        """Return the error message for missing steps."""
        return (
            f"data.split.column {self.column!r}: {num_missing:,} steps are missing in {len(gaps):,} gaps (frequency "
            f"{frequency.text}), first after {self.at(int(gaps[0]))}, expected a row for every step: say "
            "`data.window.gaps: break` (no window spans a gap) or `fill` (steps without values are inserted), another "
            f"`data.window.frequency`, or `frequency: {ROWS}` if steps need not be equally far apart"
        )

    def off(self, row: int, frequency: Frequency) -> str:
        """Return the error message for a row that lies between two steps."""
        return (
            f"data.split.column {self.column!r}: {self.at(row + 1)} is no whole number of steps (frequency "
            f"{frequency.text}) after {self.at(row)}: name the frequency in data.window.frequency ({FORMS}) and bring "
            f"the rows to it in the source, or say `frequency: {ROWS}` if steps need not be equally far apart"
        )


def _moments(table: pa.Table, name: str) -> np.ndarray:
    if name not in table.column_names:
        raise DataError(f"data.split.column: {no_such_column(name, table.column_names)}")
    column = table.column(name)
    if missing(column).any():
        raise DataError(f"data.split.column {name!r}: {int(missing(column).sum())} rows have no time: drop them")
    return times(column, name)


def _series_of(table: pa.Table, key: str | None) -> np.ndarray:
    if key is None:
        return np.zeros(table.num_rows, dtype=np.int64)
    if key not in table.column_names:
        raise DataError(f"data.window.series_key: {no_such_column(key, table.column_names)}")
    names = as_text(table.column(key))
    if names.null_count:
        raise DataError(f"data.window.series_key {key!r}: {names.null_count} rows name no series: name or drop them")
    return np.unique(names.to_numpy().astype(str), return_inverse=True)[1].astype(np.int64)


def _inferred(moments: np.ndarray, is_same: np.ndarray, place: StepNames) -> Frequency:
    """Return the most common distance, or the calendar's unit that fits all rows."""
    apart = np.diff(moments)[is_same]
    if not len(apart):
        return Frequency(1, "row")
    distances, counts = np.unique(apart, return_counts=True)
    usual = distances[counts.argmax()]
    if not _is_date(place):
        return Frequency(float(usual), "number")
    months = _months(moments)
    if usual >= _LEAST_MONTH and _same_days(moments):
        unlike, times_seen = np.unique(np.diff(months)[is_same], return_counts=True)
        return Frequency(int(unlike[times_seen.argmax()]), "month")
    weekdays = (moments // _DAY + 3) % 7  # 1 January 1970 was a Thursday; Monday is 0
    if usual == _DAY and weekdays.max() < _WEEK_WITHOUT_WEEKEND and (apart == 3 * _DAY).any():
        return Frequency(1, "weekday")
    return Frequency(int(usual), "microsecond")


def _is_date(place: StepNames) -> bool:
    return not is_number(place.table.schema.field(place.column).type)


def _months(moments: np.ndarray) -> np.ndarray:
    months: np.ndarray = moments.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
    return months


def _same_days(moments: np.ndarray) -> bool:
    """Return True if all times lie on the same day of a month, or all on a month's last day."""
    days = moments.astype("datetime64[us]").astype("datetime64[D]")
    month = days.astype("datetime64[M]")
    of_month = (days - month).astype(int)
    is_last = days + 1 == (month + 1).astype("datetime64[D]")
    return bool((of_month == of_month[0]).all() or is_last.all())


def _distances(moments: np.ndarray, is_same: np.ndarray, frequency: Frequency, place: StepNames) -> np.ndarray:
    """Return how many steps lie between neighbouring rows, int64 (row - 1,)."""
    if frequency.unit == "row":
        return np.ones(max(0, len(moments) - 1), dtype=np.int64)
    is_date = _is_date(place)
    if (frequency.unit == "number") == is_date:
        kind = "dates" if is_date else "numbers"
        raise DataError(
            f"data.window.frequency: got {frequency.text}, but the times in {place.column!r} are {kind}: expected "
            f"{FORMS}, of which a number is for times that are numbers"
        )
    apart = np.diff(_in_units(moments, frequency)) / frequency.num_units
    distances = np.round(apart).astype(np.int64)
    off = np.flatnonzero(is_same & ((np.abs(apart - distances) > 1e-6) | (distances < 1)))
    if len(off):
        raise DataError(place.off(int(off[0]), frequency))
    return distances


def _in_units(moments: np.ndarray, frequency: Frequency) -> np.ndarray:
    if frequency.unit == "month":
        return _months(moments)
    if frequency.unit == "weekday":
        days = moments.astype("datetime64[us]").astype("datetime64[D]")
        count = np.busday_count(np.datetime64("1970-01-01"), days)
        return np.where(np.is_busday(days), count, count - 0.5)  # a weekend lies between two steps
    return moments


def _steps(distances: np.ndarray) -> np.ndarray:
    """Return the steps before each row since the last gap; a distance of 0 between neighbours is another series."""
    rows = np.arange(len(distances) + 1)
    starts = np.concatenate([[True], distances != 1])
    steps: np.ndarray = rows - np.maximum.accumulate(np.where(starts, rows, 0))
    return steps


def _filled(rows: SeriesRows, moments: np.ndarray, distances: np.ndarray, place: StepNames) -> SeriesRows:
    """Return the rows with the missing steps inserted."""
    num_after = np.concatenate([np.maximum(distances - 1, 0), [0]])
    source = np.repeat(np.arange(len(moments)), num_after + 1)
    ahead = np.arange(len(source)) - np.searchsorted(source, source)  # 0: the row itself, k: the kth step after it
    is_new = ahead > 0
    table = rows.table.take(pa.array(source, mask=is_new))
    when = _moved(moments[source], ahead, rows.frequency)
    stamps = pa.array(when.astype("datetime64[us]")) if _is_date(place) else pa.array(when)
    table = table.set_column(table.column_names.index(place.column), place.column, stamps)
    if place.key is not None:
        named = rows.table.column(place.key).take(source)
        table = table.set_column(table.column_names.index(place.key), place.key, named)
    positions = np.where(is_new, -np.cumsum(is_new, dtype=np.int64), rows.positions[source])
    series = rows.series[source]
    steps = _steps((np.diff(series) == 0).astype(np.int64))
    return SeriesRows(table, positions, series, steps, rows.frequency, num_inserted=int(is_new.sum()))


def _moved(moments: np.ndarray, ahead: np.ndarray, frequency: Frequency) -> np.ndarray:
    """Return the times some steps later; of months on the same day, at most the 28th."""
    if frequency.unit in ("number", "microsecond"):
        moved: np.ndarray = moments + (ahead * frequency.num_units).astype(moments.dtype)
        return moved
    days = moments.astype("datetime64[us]").astype("datetime64[D]")
    of_day = moments - days.astype("datetime64[us]").astype(np.int64)
    if frequency.unit == "weekday":
        later = np.busday_offset(days, ahead)
    else:
        month = days.astype("datetime64[M]")
        of_month = np.minimum(days - month.astype("datetime64[D]"), np.timedelta64(27, "D"))
        later = (month + (ahead * int(frequency.num_units)).astype("timedelta64[M]")).astype("datetime64[D]") + of_month
    return np.where(ahead > 0, later.astype("datetime64[us]").astype(np.int64) + of_day, moments)
