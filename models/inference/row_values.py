"""The rules for the values that a model takes, for every way in which rows come.

This file needs numpy alone and imports nothing of Loopline but `models/sources/delimiter.py`, which needs nothing.
Like `models/inference/portable.py`, which calls it, both run where Loopline is not installed.

* A number is a number, a boolean (0 or 1), or None or NaN for missing; it is at most `MOST_NUMBER` from zero.
* A category is text, a whole number (of any type: 3.0 is 3) or a boolean; None, NaN and "" are missing. In a column of
  numbers a category may also be a fraction, and a text that is a number is that number: "3.0" is 3. In a column of
  booleans 1, 0 and "TRUE" are booleans. A whole number that no 64 bits hold is a float, as in JSON: it is no category
  of texts, because others have the same float. In a column of times or dates "2024-06-01T12:00Z" is the time, however
  it is written.
* A time is ISO 8601 text, a number of seconds since 1970 (as text too), or a datetime or date of Python; without a zone
  it is in UTC. None, NaN and "" are missing. It is of the years 1 to 9999: larger numbers are milliseconds.
* A cell of a CSV is missing if it is in `MISSING`, or if it is empty in a column in which NA is a text. In a column of
  numbers it is a number, or true or false in any case.
"""

from __future__ import annotations

import contextlib
import csv
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import numpy as np

from models.sources.delimiter import DECIMAL_COMMA, csv_rows, delimiter_in

NUMBERS = frozenset((float, int, bool, type(None)))
"""Types of the values of a numeric column."""
MOST_NUMBER = 1e30
"""Models compute in float32, which ends at 3e38: with larger inputs a prediction may be no number."""
EARLIEST_S, LATEST_S = -62_135_596_800.0, 253_402_300_800.0
"""The years 1 to 9999, as seconds since 1970."""
MISSING = frozenset((
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL",
    "NaN", "n/a", "nan", "null",
))  # fmt: skip
"""Cells of a CSV that are missing values, quoted or not: as in Arrow, which reads the training data."""
_END = "\x1e"
"""A last row behind a CSV: if it is none, a quote before it was not closed."""
_COMMA_NUMBER = re.compile(
    r"[-+]?(?:[0-9]{1,3}(?:\.[0-9]{3})+(?:,[0-9]*)?|[0-9]+(?:,[0-9]*)?|,[0-9]+)(?:[eE][-+]?[0-9]+)?"
)
_BOOLEANS, _BITS = {"true": True, "false": False}, {"1": "true", "1.0": "true", "0": "false", "0.0": "false"}


class RowError(ValueError):
    """The model does not accept a value; the message names its place and what is expected."""


def numbers(values: Sequence[Any], name: str, place: str = "row", first: int = 1) -> np.ndarray:
    """Return a column of numbers as float64 (rows,), NaN for missing, or raise `RowError`, with `place` for a row."""
    if not NUMBERS.issuperset(map(type, values)):
        index = next(index for index, value in enumerate(values) if type(value) not in NUMBERS)
        wrong = shown(values[index])
        raise RowError(f"{place} {first + index}, column {name!r}: got {wrong}, expected a number, or null for missing")
    try:
        array = np.array(values, np.float64)
    except OverflowError:  # an int of Python beyond float64
        within = [math.inf if value is not None and abs(value) > MOST_NUMBER else value for value in values]
        array = np.array(within, np.float64)
    return in_range(array, name, place, first)


def in_range(values: np.ndarray, name: str, place: str = "row", first: int = 1) -> np.ndarray:
    """Return the same numbers, or raise `RowError` if one is infinite or larger than `MOST_NUMBER`."""
    if not are_in_range(values):
        index = tuple(np.argwhere(np.abs(values) > MOST_NUMBER)[0])
        expected = f"a number between -{MOST_NUMBER:g} and {MOST_NUMBER:g}, or null for missing"
        raise RowError(
            f"{place} {first + int(index[0])}, column {name!r}: got {float(values[index])!r}, expected {expected}"
        )
    return values


def are_in_range(values: np.ndarray) -> bool:
    """Return True if no value is larger than `MOST_NUMBER`; missing values pass.

    For a few values the sum of squares is a quick first check; for many the threads of BLAS would cost more.
    """
    if values.size <= 4096 and np.vdot(values, values) < MOST_NUMBER**2:
        return True
    return not np.count_nonzero(np.abs(values) > MOST_NUMBER)


def checked_windows(values: np.ndarray, length: int, parts: Sequence[tuple[str, int]]) -> np.ndarray:
    """Return windows of series (window, step, input) as float64.

    Args:
        values: Of any type of numbers.
        length: Steps of a window.
        parts: See `check_known`.

    Raises:
        RowError: They have another shape, or the model does not accept a value.
    """
    if values.shape[1:] != (length, len(parts)) or not len(values):
        expected = f"[rows, {length}, {len(parts)}]"
        raise RowError(f"input 'series': got shape {list(values.shape)}, expected {expected}")
    if values.dtype.kind not in "fiub":
        raise RowError("input 'series': got BYTES, expected FP64, or another type of numbers")
    windows = in_range(np.ascontiguousarray(values, np.float64), "series", "window")
    check_known(windows[:, -1], parts, lambda index: f"window {index + 1}")
    return windows


def check_known(last: np.ndarray, parts: Sequence[tuple[str, int]], place: Callable[[int], str]) -> None:
    """Refuse windows that lack a value which the model takes as known beforehand.

    Args:
        last: The inputs at the last step of each window (window, input).
        parts: The column of each input, and how many steps later its value lies: 0 if it is not of a later step.
        place: Returns the name of a window for the message.

    Raises:
        RowError: Names the first window and the column.
    """
    for index, (name, ahead) in enumerate(parts):
        lacks = np.isnan(last[:, index])
        if ahead and lacks.any():
            raise RowError(
                f"{place(int(lacks.argmax()))}: no value of {name!r} for the step {ahead} ahead, which the model takes "
                "as known beforehand: give it"
            )


def categories(values: Sequence[Any], name: str, dtype: str = "string", first: int = 1) -> np.ndarray:
    """Return a column of categories as an object array of texts (rows,), "" for missing: the text form of training.

    `dtype` is what the column held in training: `string`, `integer` (numbers, fractions too), `boolean` or `time`. A
    value that is no category raises `RowError`.
    """
    texts = [_category(value, dtype) for value in values]
    expected = "a time or a date in ISO 8601, or null for missing" if dtype == "time" else "text, or null for missing"
    return np.array(_complete(texts, values, name, first, expected), object)


def moments(values: Sequence[Any], name: str, first: int = 1) -> np.ndarray:
    """Return a column of times as float64 (rows,) seconds since 1970 in UTC, NaN for missing.

    Raises:
        RowError: A value is no time; names row, column, value and what is expected.
    """
    seconds = [_seconds(value) for value in values]
    expected = "a time: ISO 8601 text such as 2024-05-31T14:30:00Z, seconds since 1970, or null for missing"
    return np.array(_complete(seconds, values, name, first, expected), np.float64)


def written_values(values: Sequence[Any], name: str, form: str, first: int = 1) -> list[Any]:
    """Return texts and whole numbers as the times or numbers that they say in the form of their column.

    A time has no zone and is in UTC. None, NaN and "" are None; values of other types stay as they are.

    Args:
        values: Of the column.
        name: Of the column.
        form: One of `strptime`, beside which ISO 8601 is read, or `DECIMAL_COMMA`.
        first: Number of the first row, for messages.

    Raises:
        RowError: A text or number is neither; names row, column, value and what is expected.
    """
    read = _comma_number if form == DECIMAL_COMMA else partial(_written_time, form=form)
    results = [read(value) for value in values]
    for row, (result, value) in enumerate(zip(results, values, strict=True), first):
        if isinstance(result, str):
            raise RowError(f"row {row}, column {name!r}: got {shown(value)}, expected {_expected(form)}")
    return results


def columns_written(columns: Mapping[str, Sequence[Any]], forms: Mapping[str, str]) -> dict[str, Sequence[Any]]:
    """Return columns by name, `written_values` of those that have a form."""
    return {
        name: written_values(values, name, forms[name]) if name in forms else values for name, values in columns.items()
    }


def _expected(form: str) -> str:
    if form == DECIMAL_COMMA:
        return "a number with a decimal comma such as 1.234,5, or null for missing"
    example = datetime(2024, 5, 31, 14, 30).strftime(form)
    return f"a time such as {example} ({form}), one in ISO 8601, or null for missing"


def _comma_number(value: Any) -> Any:
    """Return the number that a value says, None for missing; a text that says none as text."""
    if not isinstance(value, str):
        return None if value != value else value
    text = value.strip()
    if _COMMA_NUMBER.fullmatch(text):
        return float(text.replace(".", "").replace(",", "."))
    return text or None


def _written_time(value: Any, form: str) -> Any:
    """Return the time that a value says, None for missing; a text or number that says none as text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    text = str(value).strip()
    if not text or value != value:
        return None
    number = _number_text(text)  # 20240531.0 is 20240531, as pandas writes it beside missing values
    for written in dict.fromkeys((text, number)):
        with contextlib.suppress(ValueError):
            return _in_utc(datetime.strptime(written, form))
    return _in_utc(_iso_time(number))


def _in_utc(time: datetime | str) -> datetime | str:
    return time.astimezone(UTC).replace(tzinfo=None) if isinstance(time, datetime) and time.tzinfo else time


def _complete(parts: list[Any], values: Sequence[Any], name: str, first: int, expected: str) -> list[Any]:
    if None in parts:
        index = parts.index(None)
        raise RowError(f"row {first + index}, column {name!r}: got {shown(values[index])}, expected {expected}")
    return parts


def _seconds(value: Any) -> float | None:
    """Return a time as seconds since 1970, NaN for missing; None if the value is no time."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = value.isoformat()
    if isinstance(value, str):
        parsed = _parsed(value.strip())
        value = _iso_time(parsed) if isinstance(parsed, str) else parsed
    if value is None or value != value:
        return math.nan
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    is_time = isinstance(value, float | int) and not isinstance(value, bool) and EARLIEST_S <= value < LATEST_S
    return float(value) if is_time else None


def _iso_time(text: str) -> datetime | str:
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text)
    return text


def texts(values: Sequence[Any], name: str) -> np.ndarray:
    """Return a column of texts as an object array (rows,), "" for missing.

    Raises:
        RowError: A value is no text; names row, column and value.
    """
    for number, value in enumerate(values, 1):
        if value is not None and value == value and not isinstance(value, str):
            raise RowError(f"row {number}, column {name!r}: got {shown(value)}, expected text, or null for missing")
    return np.array([value if isinstance(value, str) else "" for value in values], object)


def _category(value: Any, dtype: str) -> str | None:
    """Return the text form of a category; None if the value is none."""
    if value is None or value != value:
        return ""
    if dtype == "time":
        return time_text(str(value).strip()) if isinstance(value, str | date) else None
    if isinstance(value, str):
        if dtype == "string":
            return value
        word = value.strip()
        return _BITS.get(word, word.lower()) if dtype == "boolean" else _number_text(word)
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float | int):
        return None
    text = _whole_text(value) if isinstance(value, int) else number_text(value) if math.isfinite(value) else None
    if text is None or (dtype != "integer" and not text.lstrip("-").isdecimal()):
        return None
    return _BITS.get(text, text) if dtype == "boolean" else text


def time_text(text: str) -> str | None:
    """Return the text form of a time that is a category, in UTC, of midnight its date; None if the text is no time."""
    moment = _in_utc(_iso_time(text))
    if isinstance(moment, str):
        return None if text else ""
    return str(moment).removesuffix(" 00:00:00")


def number_text(value: float) -> str:
    """Return the text form of a number that is a category: `3` for 3.0, `1.5`, `1e+20`."""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _whole_text(value: int) -> str | None:
    """Return the text form of a whole number; None if it is beyond float64."""
    if -(2**63) <= value < 2**64:
        return str(value)
    with contextlib.suppress(OverflowError):
        return number_text(float(value))
    return None


def _number_text(text: str) -> str:
    """Return a text that is a number in the form of `number_text`, and any other text unchanged."""
    if "_" in text:
        return text
    try:
        return _whole_text(int(text)) or text
    except ValueError:
        number = _parsed(text)
        return number_text(number) if isinstance(number, float) and math.isfinite(number) else text


def number_cells(cells: Iterable[str | None]) -> list[float | bool | str | None]:
    """Return the cells of a numeric column of a CSV as numbers, booleans or None; any other text stays text."""
    return [None if cell is None or cell in MISSING else _parsed(cell.strip()) for cell in cells]


def _parsed(cell: str) -> float | bool | str | None:
    if not cell:
        return None
    flag = _BOOLEANS.get(cell.lower())
    if flag is not None:
        return flag
    try:
        return cell if "_" in cell else float(cell)
    except ValueError:
        return cell


def csv_columns(content: bytes, na_is_text: Collection[str] = ()) -> dict[str, list[str | None]]:
    """Return the columns of a CSV with a header, None for missing cells; see `csv_cells` and `with_missing`."""
    return with_missing(csv_cells(content), na_is_text)


def with_missing(columns: Mapping[str, Sequence[str]], na_is_text: Collection[str] = ()) -> dict[str, list[str | None]]:
    """Return cells with None for those in `MISSING`, or for empty ones in the columns `na_is_text`."""
    words = {name: frozenset(("",)) if name in na_is_text else MISSING for name in columns}
    return {name: [None if cell in words[name] else cell for cell in cells] for name, cells in columns.items()}


def csv_cells(content: bytes) -> dict[str, list[str]]:
    """Return the columns of a CSV with a header, each cell as it is written.

    Quotes, separators, blank lines and line breaks in quotes mean what they mean in Arrow's reader, which reads the
    training data (`models/sources/read.py`).

    Raises:
        RowError: The content is no such CSV in UTF-8.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RowError("the CSV is no UTF-8: convert it") from None
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    *rows, last = csv_rows(f"{text}\n{_END}\n", delimiter_in(content))
    if last != [_END]:
        first = text.count("\n") + 3 - sum(cell.count("\n") for cell in last)
        raise RowError(f"CSV, line {first}: a quote is opened and never closed: close it")
    if not rows:
        raise RowError("got no CSV, expected a line of column names and rows under it")
    names, *rows = rows
    return columns_by_name(names, rows, "CSV")


def columns_by_name(names: Any, rows: Any, where: str) -> dict[str, list[Any]]:
    """Return columns by name from rows as lists.

    Raises:
        RowError: A name is there twice, or a row has another number of values than there are names.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RowError(f"{where}: expected the columns as a list of names")
    if len(set(names)) != len(names):
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise RowError(f"{where}: a column is there twice: {twice[:60]!r}")
    if not isinstance(rows, list) or not rows:
        raise RowError(f"{where}: got no rows, expected one or more, each a list of values")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != len(names):
            raise RowError(
                f"{where}, row {number}: got {shown(row)}, expected a list of {len(names)}: a value a column"
            )
    return {name: list(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


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
