"""The data's clock: the past in time order, cut into periods, and the rows and labels known at each moment."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np
import pyarrow as pa

from models.data import split
from models.data.header import no_such_column
from models.errors import DataError, UsageError
from models.identity.hashing import hash_rows, missing
from models.inputs.types import is_number
from models.kinds.data_kind import PerDataKind
from models.kinds.task import refusal
from models.project_spec.blocks import Data
from models.project_spec.schedule import unix_time

DAY_S = 86_400.0
_US = 1e6
MONTH_S = 30 * DAY_S
"""Length of a period if the rows have an order but no dates."""

Calendar = Literal["day", "week", "month"]
_WORDS = {
    1.0: ("s", "sec", "second"),
    60.0: ("m", "min", "minute"),
    3600.0: ("h", "hour"),
    DAY_S: ("d", "day"),
    7 * DAY_S: ("w", "week"),
}
_UNITS_S = {word + plural: seconds for seconds, words in _WORDS.items() for word in words for plural in ("", "s")}
_LONGEST_S = 40 * DAY_S
_STUB = 0.1


@dataclass(frozen=True)
class PeriodRule:
    """How the past is divided: by the calendar (UTC), or every `rows` rows."""

    calendar: Calendar | None = None
    rows: int = 0

    @property
    def text(self) -> str:
        """The rule as text, such as `month` or `5000 rows`."""
        return self.calendar or f"{self.rows} rows"


@dataclass(frozen=True)
class RowRange:
    """Rows `first` to `stop` (exclusive), in time order."""

    first: int
    stop: int


@dataclass(frozen=True)
class Period:
    """Rows `first` to `stop` (exclusive) in time order, which arrived from `begin` until just before `end` (Unix s)."""

    name: str
    begin: float
    end: float
    first: int
    stop: int

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.first


@dataclass(frozen=True)
class LabelClock:
    """The times of the rows, ascending (Unix s), and the delay between a row and its label."""

    times: np.ndarray
    delay_s: float = 0.0
    has_calendar: bool = True

    def labelled(self, moment: float) -> int:
        """Return how many rows, counted from the oldest, had their labels before the moment `moment`."""
        return int(np.searchsorted(self.times + self.delay_s, moment, side="left"))


@dataclass(frozen=True)
class TimeOrderedRows:
    """Rows in time order, their times, and a hash of each."""

    table: pa.Table
    clock: LabelClock
    hashes: np.ndarray
    notes: list[str] = field(default_factory=list)

    def digest(self, rows: RowRange) -> str:
        """Return a hash that identifies these rows: their values, their order, and the types of the columns."""
        digest = hashlib.sha256(str(self.table.schema.remove_metadata()).encode())
        digest.update(np.ascontiguousarray(self.hashes[rows.first : rows.stop]).tobytes())
        return digest.hexdigest()


def _takes_any(data: Data) -> None:
    del data


def _check_window(data: Data) -> None:
    """Refuse windows that a replay cannot make from the rows before a period."""
    window = data.required_window
    for key, is_set in (
        ("series_key", window.series_key),
        ("gaps: fill", window.gaps == "fill"),
        ("known_future", window.known_future),
    ):
        if is_set:
            raise UsageError(
                f"backtest: replays one series as it is, but the spec has data.window.{key}: drop it for this"
            )


def _refuse_text(data: Data) -> None:
    raise UsageError(
        f"backtest: got data.kind {data.kind}, expected table, image or series: a text has no rows that are labelled "
        "later, so compare versions by the verdict of `loopline run`"
    )


_CHECKS: PerDataKind[Callable[[Data], None]] = {
    "table": _takes_any,
    "image": _takes_any,
    "series": _check_window,
    "text": _refuse_text,
}


def in_time_order(table: pa.Table, data: Data, cut: PeriodRule, delay_s: float = 0.0) -> TimeOrderedRows:
    """Put a raw table in the order of `data.split`: by its time column, or unchanged when split by position.

    Rows that never got a label are left out, except in a series, whose steps must stay evenly spaced.

    Raises:
        UsageError: The rows have no order in time, or not one that fits `cut` and `delay_s`.
        DataError: The time column is absent, has gaps, or holds text that is not a date.
    """
    _CHECKS[data.kind](data)
    notes = []
    never = np.zeros(table.num_rows, dtype=bool)
    for name in data.needed_targets:
        never |= missing(_column(table, name, "data.target"))
    if never.any():
        notes.append(f"{int(never.sum())} rows without a label were left out")
        table = table.filter(pa.array(~never))
    if data.split.by == "time":
        moments, has_calendar = _moments(table, str(data.split.column))
        order = np.argsort(moments, kind="stable")
        table, moments = table.take(pa.array(order)), moments[order]
    elif data.split.by == "position":
        moments, has_calendar = np.arange(table.num_rows, dtype=np.float64), False
    elif reason := refusal(data.task, "backtest"):
        raise UsageError(f"backtest: {reason}")
    else:
        raise UsageError(
            f"backtest: the rows have no order in time (data.split.by is {data.split.by}): name their time column, "
            "-s data.split.by=time -s data.split.column=NAME, or, if they are in time order, -s data.split.by=position"
        )
    if not has_calendar:
        moments = _without_calendar(table.num_rows, cut, delay_s)
        notes.append(f"the rows have an order but no dates: {cut.text} count for 30 days")
    return TimeOrderedRows(
        table, LabelClock(moments, delay_s, has_calendar), hash_rows(table, table.column_names), notes
    )


def parse_cut(text: str) -> PeriodRule:
    """Parse `month`, `week`, `day`, or a number of rows such as `5000 rows`.

    Raises:
        UsageError: The text is none of them.
    """
    word = text.strip().lower().removesuffix("ly").removesuffix("s") if not text.strip()[:1].isdigit() else ""
    if word in ("day", "week", "month"):
        return PeriodRule(calendar=word)  # type: ignore[arg-type]
    match = re.fullmatch(r"\s*(\d[\d_,]*)\s*(rows?)?\s*", text, re.IGNORECASE)
    rows = int(re.sub(r"[_,]", "", match[1])) if match else 0
    if rows < 1:
        raise UsageError(f"--period: got {text!r}, expected month, week, day or a number of rows such as '5000 rows'")
    return PeriodRule(rows=rows)


def parse_delay(text: str) -> float:
    """Parse `12h`, `7d` or `2w` into seconds; a bare 0 is no delay.

    Raises:
        UsageError: The text is no such duration.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match and not match[2] and not float(match[1]):
        return 0.0
    unit_s = _UNITS_S.get(match[2].lower()) if match and match[2] != "M" else None  # pandas' M is a month
    if not match or unit_s is None:
        raise UsageError(
            f"--label-delay: got {text!r}, expected a number and a unit (s, min, h, d or w), such as 12h, 7d or 2w; "
            "months differ in length: say them in days"
        )
    return float(match[1]) * unit_s


def parse_date(text: str) -> float:
    """Parse an ISO date or time into Unix seconds; without a time zone it is UTC.

    Raises:
        UsageError: The text is no date.
    """
    try:
        return unix_time(text)
    except ValueError as error:
        raise UsageError(f"--from: got {text!r}, expected a date such as 2013-03-01") from error


def positions_as_times(num_rows: int, cut: PeriodRule) -> np.ndarray:
    """Return times for rows that have none: a period of `cut.rows` rows counts for 30 days.

    Raises:
        UsageError: The cut is by a calendar that the rows do not have.
    """
    if cut.calendar:
        raise UsageError(
            f"--period {cut.text}: the rows have no dates, only an order: say --period '5000 rows', or give the data "
            "a date column and split by it (data.split: {by: time, column: ...})"
        )
    return np.arange(num_rows) * (MONTH_S / cut.rows)


def cut_periods(clock: LabelClock, cut: PeriodRule) -> list[Period]:
    """Cut the past into periods, oldest first, without empty ones; rows with the same time stay together.

    Raises:
        DataError: There are no rows.
    """
    if not len(clock.times):
        raise DataError("backtest: no labelled rows: there is no past to replay")
    return _by_calendar(clock.times, cut.calendar) if cut.calendar else _by_rows(clock, cut.rows)


def without_stub(periods: list[Period]) -> list[Period]:
    """Remove a last period that has hardly begun: it has less than a tenth of the median number of rows."""
    usual = float(np.median([period.num_rows for period in periods]))
    return periods[:-1] if len(periods) > 2 and periods[-1].num_rows < _STUB * usual else periods


def num_training(periods: list[Period], least_rows: int, begin: float | None = None) -> int:
    """Return how many first periods train the first champion: those before `begin`, or the fewest with `least_rows`.

    Raises:
        UsageError: No period is left to train on, or none to replay.
    """
    if begin is not None:
        count = sum(period.end <= begin for period in periods)
        limit = f"--from {iso(begin)}"
    else:
        count = next((n for n, period in enumerate(periods, 1) if period.stop >= least_rows), len(periods))
        limit = f"the first champion needs {least_rows} rows"
    if not 1 <= count < len(periods):
        raise UsageError(
            f"backtest: {limit}, but the data has {periods[-1].stop} rows in {len(periods)} periods "
            f"({periods[0].name} to {periods[-1].name}): at least one must come before and one after it; "
            "choose another --from or shorter periods"
        )
    return count


def iso(timestamp: float) -> str:
    """Return a moment as a date, with the time of day if it is not midnight UTC."""
    moment = datetime.fromtimestamp(timestamp, UTC)
    return f"{moment:%Y-%m-%d}" if timestamp % DAY_S == 0 else f"{moment:%Y-%m-%d %H:%M}"


def _by_calendar(times: np.ndarray, calendar: Calendar) -> list[Period]:
    periods, first = [], 0
    while first < len(times):
        begin, end = _around(float(times[first]), calendar)
        stop = int(np.searchsorted(times, end, side="left"))
        periods.append(Period(_name(begin, calendar), begin, end, first, stop))
        first = stop
    return periods


def _around(timestamp: float, calendar: Calendar) -> tuple[float, float]:
    """Return begin and end of the day, week (from Monday) or month that contains a moment."""
    day = datetime.fromtimestamp(timestamp, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if calendar == "month":
        begin = day.replace(day=1)
        end = (begin + timedelta(seconds=_LONGEST_S)).replace(day=1)
    elif calendar == "week":
        begin = day - timedelta(days=day.weekday())
        end = begin + timedelta(days=7)
    else:
        begin, end = day, day + timedelta(days=1)
    return begin.timestamp(), end.timestamp()


def _name(begin: float, calendar: Calendar) -> str:
    day = datetime.fromtimestamp(begin, UTC)
    return f"{day:%Y-%m}" if calendar == "month" else f"{day:%G-W%V}" if calendar == "week" else f"{day:%Y-%m-%d}"


def _by_rows(clock: LabelClock, rows: int) -> list[Period]:
    times, periods, first = clock.times, [], 0
    while first < len(times):
        stop = int(np.searchsorted(times, times[min(first + rows, len(times)) - 1], side="right"))
        end = float(times[stop]) if stop < len(times) else _after_last(clock, rows)
        name = iso(float(times[first])) if clock.has_calendar else f"row {first + 1}"
        periods.append(Period(name, float(times[first]), end, first, stop))
        first = stop
    return periods


def _after_last(clock: LabelClock, rows: int) -> float:
    step = 1.0 if clock.has_calendar else MONTH_S / rows
    return float(clock.times[-1]) + step


def _without_calendar(num_rows: int, cut: PeriodRule, delay_s: float) -> np.ndarray:
    if delay_s:
        raise UsageError("--label-delay: the rows have no dates, so there is nothing to delay: leave it out")
    return positions_as_times(num_rows, cut)


def _moments(table: pa.Table, name: str) -> tuple[np.ndarray, bool]:
    """Return Unix seconds of each row and True; the plain numbers and False if the column holds no dates."""
    column = _column(table, name, "data.split.column")
    gaps = int(missing(column).sum())
    if gaps:
        raise DataError(f"data.split.column {name!r}: {gaps} rows have no time: fill or drop them in a source function")
    values = split.times(column, name)
    is_date = not is_number(column.type)
    return values.astype(np.float64) / (_US if is_date else 1.0), is_date


def _column(table: pa.Table, name: str, key: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise DataError(f"{key}: {no_such_column(name, table.column_names)}")
    return table.column(name)
