"""Recognises a table that is one series, or many: one number a period, in equal steps of time."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from models.data.series import series_rows
from models.data.window_reference import seasons_of
from models.errors import DataError
from models.inputs.types import is_number, is_text
from models.project_spec.window import Window
from models.scaffold.roles import is_date, numbered_times

FEWEST_STEPS = 60
"""Fewer steps leave too few windows for validation and test."""
SEASONS = 3
"""Seasons in a window, of the shortest season. Source: docs/decisions/0032-series-start-from-a-forecast.md."""
LENGTH_WITHOUT_SEASON = 8
"""Steps in a window where the frequency has no season, such as a year. Source: the same."""
MOST_LENGTH = 96
"""Trees read no more steps of a window, and the time of a GRU grows with them."""
MOST_SHARE = 0.2
"""Most of the steps of a series that a window may take: three years of fifteen."""
MOST_MISSING = 0.1
"""Most of the steps that may be missing, such as days on which a shop is closed; beyond, rows are not one a period."""


@dataclass(frozen=True)
class SeriesShape:
    """What a series is made of: its time, the column that names the series (None: one series), steps of a window."""

    time: str
    key: str | None
    length: int
    frequency: str
    num_missing: int


def recognise(table: pa.Table, target: str) -> SeriesShape | None:
    """Return the shape of a table whose target is a number of each period; None for another table.

    Each series has at least `FEWEST_STEPS` steps on average, and few steps are missing. A table with several columns of
    times is none.
    """
    times = [name for name in table.column_names if is_date(table, name)] or numbered_times(table)[:1]
    column = table.column(target)
    if len(times) != 1 or target in times or not is_number(column.type) or pc.count_distinct(column).as_py() <= 2:
        return None
    if table.column(times[0]).null_count:
        return None
    num_times = pc.count_distinct(table.column(times[0])).as_py()
    keys: list[str | None] = [None] if num_times == table.num_rows else _keys(table, target, table.num_rows / num_times)
    for key in keys:
        shape = _shape(table, times[0], key)
        if shape is not None:
            return shape
    return None


def _keys(table: pa.Table, target: str, min_values: float) -> list[str | None]:
    """Return the columns that may name a series: texts and whole numbers with as many values as rows share a time."""
    names: list[str | None] = []
    for field in table.schema:
        may_name = is_text(field.type) or pa.types.is_integer(field.type)
        if field.name == target or not may_name or table.column(field.name).null_count:
            continue
        num_values = pc.count_distinct(table.column(field.name)).as_py()
        if min_values <= num_values <= table.num_rows / FEWEST_STEPS:
            names.append(field.name)
    return names


def _shape(table: pa.Table, time: str, key: str | None) -> SeriesShape | None:
    num_series = 1 if key is None else pc.count_distinct(table.column(key)).as_py()
    steps = table.num_rows / num_series
    if steps < FEWEST_STEPS:
        return None
    try:
        rows = series_rows(table, Window(length=2, series_key=key, gaps="break"), time)
    except DataError:
        return None
    if rows.num_missing > MOST_MISSING * (table.num_rows + rows.num_missing):
        return None
    seasons = seasons_of(rows.frequency)
    length = min(SEASONS * seasons[0], MOST_LENGTH) if seasons else LENGTH_WITHOUT_SEASON
    return SeriesShape(time, key, min(length, int(steps * MOST_SHARE)), rows.frequency.text, rows.num_missing)
