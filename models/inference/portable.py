"""The part of inference that runs where Loopline is not installed: rows to inputs of a graph, and its predictions.

This file needs numpy and ONNX Runtime alone and imports nothing of Loopline. Its text goes into each registered
version, where it is MLflow's `pyfunc` loader, and into each edge bundle; batch prediction and the server call it. So
there is one rule for the values that a model takes and one for the columns that it returns:

* A number is a number, a boolean (0 or 1), or None or NaN for missing; it is at most `MOST_NUMBER` from zero.
* A category is text, a whole number (of any type: 3.0 is 3) or a boolean; None, NaN and "" are missing. In a column of
  numbers a category may also be a fraction, and a text that is a number is that number: "3.0" is 3. In a column of
  booleans 1, 0 and "TRUE" are booleans.
* A time is ISO 8601 text, a number of seconds since 1970 (as text too), or a datetime or date of Python; without a zone
  it is in UTC. None, NaN and "" are missing. It is of the years 1 to 9999: larger numbers are milliseconds.
* A cell of a CSV is missing if it is in `MISSING`. In a column of numbers it is a number, or true or false in any case.

MLflow's ONNX loader passes on pandas' text columns, which fail, and has no column a class (mlflow 3.17.2, pandas 3.1).
"""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnxruntime
    import pandas as pd

LABEL, LABELS, PROBABILITIES, PREDICTION = "label", "labels", "probabilities", "prediction"
NEXT_CHARACTER, PROBABILITY, BITS_PER_CHAR = "next_character", "probability", "bits_per_char"
PREPARATION_KEY = "loopline.preparation"
"""Key of the preparation schema, as JSON, in the metadata of `model.onnx`."""
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
_BOOLEANS, _BITS = {"true": True, "false": False}, {"1": "true", "1.0": "true", "0": "false", "0.0": "false"}


class RowError(ValueError):
    """The model does not accept a value; the message names its place and what is expected."""


def numbers(values: Sequence[Any], name: str, place: str = "row", first: int = 0) -> np.ndarray:
    """Return a column of numbers as float64 (rows,), NaN for missing, or raise `RowError`, with `place` for a row."""
    if not NUMBERS.issuperset(map(type, values)):
        at = next(at for at, value in enumerate(values) if type(value) not in NUMBERS)
        wrong = shown(values[at])
        raise RowError(f"{place} {first + at}, column {name!r}: got {wrong}, expected a number, or null for missing")
    return in_range(np.array(values, np.float64), name, place, first)


def in_range(values: np.ndarray, name: str, place: str = "row", first: int = 0) -> np.ndarray:
    """Return the same numbers, or raise `RowError` if one is infinite or larger than `MOST_NUMBER`."""
    if not are_in_range(values):
        at = tuple(np.argwhere(np.abs(values) > MOST_NUMBER)[0])
        expected = f"a number between -{MOST_NUMBER:g} and {MOST_NUMBER:g}, or null for missing"
        raise RowError(f"{place} {first + int(at[0])}, column {name!r}: got {float(values[at])!r}, expected {expected}")
    return values


def are_in_range(values: np.ndarray) -> bool:
    """Return True if no value is larger than `MOST_NUMBER`; missing values pass.

    For a few values the sum of squares is a quick first check; for many the threads of BLAS would cost more.
    """
    if values.size <= 4096 and np.vdot(values, values) < MOST_NUMBER**2:
        return True
    return not np.count_nonzero(np.abs(values) > MOST_NUMBER)


def categories(values: Sequence[Any], name: str, dtype: str = "string", first: int = 0) -> np.ndarray:
    """Return a column of categories as an object array of texts (rows,), "" for missing: the text form of training.

    `dtype` is what the column held in training: `string`, `integer` (numbers, fractions too) or `boolean`. A value that
    is no category raises `RowError`.
    """
    texts = [_category(value, dtype) for value in values]
    return np.array(_complete(texts, values, name, first, "text, or null for missing"), object)


def moments(values: Sequence[Any], name: str, first: int = 0) -> np.ndarray:
    """Return a column of times as float64 (rows,) seconds since 1970 in UTC, NaN for missing.

    Raises:
        RowError: A value is no time; names row, column, value and what is expected.
    """
    seconds = [_seconds(value) for value in values]
    expected = "a time: ISO 8601 text such as 2024-05-31T14:30:00Z, seconds since 1970, or null for missing"
    return np.array(_complete(seconds, values, name, first, expected), np.float64)


def _complete(parts: list[Any], values: Sequence[Any], name: str, first: int, expected: str) -> list[Any]:
    if None in parts:
        at = parts.index(None)
        raise RowError(f"row {first + at}, column {name!r}: got {shown(values[at])}, expected {expected}")
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
    for at, value in enumerate(values):
        if value is not None and value == value and not isinstance(value, str):
            raise RowError(f"row {at}, column {name!r}: got {shown(value)}, expected text, or null for missing")
    return np.array([value if isinstance(value, str) else "" for value in values], object)


def _category(value: Any, dtype: str) -> str | None:
    """Return the text form of a category; None if the value is none."""
    if isinstance(value, str):
        if dtype == "string":
            return value
        word = value.strip()
        return _BITS.get(word, word.lower()) if dtype == "boolean" else _number_text(word)
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if not value.is_integer() and (dtype != "integer" or math.isinf(value)):
            return None
        text = number_text(value)
    elif isinstance(value, int):
        text = str(value)
    else:
        return None
    return _BITS.get(text, text) if dtype == "boolean" else text


def number_text(value: float) -> str:
    """Return the text form of a number that is a category: `3` for 3.0, `1.5`, `1e+20`."""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _number_text(text: str) -> str:
    """Return a text that is a number in the form of `number_text`, and any other text unchanged."""
    if "_" in text:
        return text
    try:
        return str(int(text))
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


def csv_columns(content: bytes) -> dict[str, list[str | None]]:
    """Return the columns of a CSV with a header, None for the cells in `MISSING`.

    Raises:
        RowError: The content is no such CSV in UTF-8.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RowError("the CSV is no UTF-8: convert it") from None
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        names, *rows = [line for line in lines if line]
    except csv.Error as error:
        raise RowError(f"CSV, line {lines.line_num}: {error}") from None
    except ValueError:
        raise RowError("got no CSV, expected a line of column names and rows under it") from None
    columns = columns_by_name(names, rows, "CSV")
    return {name: [None if cell in MISSING else cell for cell in cells] for name, cells in columns.items()}


def columns_by_name(names: Any, rows: Any, where: str) -> dict[str, list[Any]]:
    """Return columns by name from rows as lists.

    Raises:
        RowError: A name is there twice, or a row has another number of values than there are names.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RowError(f"{where}: expected the columns as a list of names")
    if len(set(names)) != len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise RowError(f"{where}: a column is there twice: {twice[:60]!r}")
    if not isinstance(rows, list) or not rows:
        raise RowError(f"{where}: got no rows, expected one or more, each a list of values")
    for at, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            raise RowError(f"{where}, row {at}: got {shown(row)}, expected a list of {len(names)}: a value a column")
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


def column_names(task: str, names: Iterable[str]) -> list[str]:
    """Return the names of the columns that callers see, from the task and the names of classes or outputs.

    `label` or `labels`, then `probability_<name>` of each; or `prediction_<name>` of each. Of one number none.
    """
    if task in ("regression", "quantile"):
        return [f"{PREDICTION}_{name}" for name in names]
    return [LABELS if task == "multilabel" else LABEL, *(f"{PROBABILITY}_{name}" for name in names)]


def columns_of(outputs: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the columns that callers see: those of `column_names`, else a model's outputs."""
    if PROBABILITIES in outputs:
        chances = outputs[PROBABILITIES].astype(np.float64)
        first = _label_lists(outputs[LABELS], names) if LABELS in outputs else outputs[LABEL]
        return dict(zip(names, (first, *chances.T), strict=True))
    if names and PREDICTION in outputs:
        return dict(zip(names, outputs[PREDICTION].T, strict=True))
    return dict(outputs)


def _label_lists(flags: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Return the labels of each row whose flag is set: an object array of lists (row,), from bool (row, label)."""
    labels = [name.removeprefix(f"{PROBABILITY}_") for name in names[1:]]
    return np.fromiter((list(itertools.compress(labels, row)) for row in flags.tolist()), object, len(flags))


def records_of(outputs: Mapping[str, np.ndarray], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the columns that callers see as rows of plain values; for one row in half the time of `columns_of`."""
    if PROBABILITIES not in outputs:
        if names and PREDICTION in outputs:
            return [dict(zip(names, row, strict=True)) for row in outputs[PREDICTION].tolist()]
        rows = zip(*map(np.ndarray.tolist, outputs.values()), strict=True)
        return [dict(zip(outputs, row, strict=True)) for row in rows]
    chances = outputs[PROBABILITIES].astype(np.float64).tolist()
    labels = _label_lists(outputs[LABELS], names) if LABELS in outputs else outputs[LABEL]
    return [dict(zip(names, (label, *row), strict=True)) for label, row in zip(labels.tolist(), chances, strict=True)]


class Predictor:
    """Predicts rows with a graph that has its preparation schema in its metadata; MLflow calls `predict`."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._preparation = json.loads(session.get_modelmeta().custom_metadata_map[PREPARATION_KEY])
        self._kind = self._preparation["kind"]
        target = self._preparation["target"]
        named = target["classes"] or [output["name"] for output in target.get("outputs", ())]
        self._names = column_names(self._preparation["task"], named)
        self._parts = [(one.get("source") or one["name"], one.get("ahead", 0)) for one in self._preparation["numeric"]]
        self._numeric = list(dict.fromkeys(name for name, _ in self._parts))

    def predict(
        self, model_input: pd.DataFrame | Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return the columns of `column_names`, or `prediction`, of rows.

        `model_input` has a column for each input, or arrays by input name. Text: a column `text`. `params` is ignored.

        Raises:
            RowError: The model does not accept a value.
        """
        import pandas as pd

        del params
        if self._kind == "table":
            feed = self._table({str(name): _plain(values) for name, values in model_input.items()})
        elif self._kind == "text":
            feed = {"text": texts(_plain(model_input["text"]), "text")}
        else:
            feed = {self._kind: np.asarray(model_input[self._kind], np.uint8 if self._kind == "image" else np.float64)}
        return pd.DataFrame(columns_of(self._outputs(feed), self._names))

    def records(self, path: Path) -> list[dict[str, Any]]:
        """Predict the rows of a CSV or JSON file; of series, whose steps come oldest first, the last step of each.

        Raises:
            RowError: The file is neither, or the model does not accept a value.
        """
        content = path.read_bytes()
        if path.suffix.lower() == ".csv":
            columns: dict[str, list[Any]] = csv_columns(content)
            columns |= {name: number_cells(columns[name]) for name in self._numeric if name in columns}
        else:
            rows = json.loads(content)
            rows = rows if isinstance(rows, list) else [rows]
            if not rows or not all(isinstance(row, dict) for row in rows):
                raise RowError("expected one object, or a list of some, of columns and values")
            columns = {name: [row[name] for row in rows] for name in rows[0] if all(name in row for row in rows)}
        predictions = records_of(self._outputs(self._feed(columns)), self._names)
        return [{name: None if value != value else value for name, value in row.items()} for row in predictions]

    def _feed(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, np.ndarray]:
        preparation = self._preparation
        if self._kind == "table":
            return self._table(columns)
        if self._kind == "text":
            name = preparation["characters"]["column"]
            return {"text": texts(_column(columns, name), name)}
        if self._kind == "image":
            shape = self._session.get_inputs()[0].shape[1:]
            images = [base64.b64decode(image) for image in _column(columns, preparation["pixels"]["image"]["column"])]
            return {"image": np.stack([np.frombuffer(image, np.uint8).reshape(shape) for image in images])}
        return {"series": self._last_windows(columns)}

    def _last_windows(self, columns: Mapping[str, Sequence[Any]]) -> np.ndarray:
        """Return the last window (series, step, feature) of each series, in the order in which the series appear."""
        steps = {name: numbers(_column(columns, name), name, "step") for name in self._numeric}
        length, key = self._preparation["window"]["length"], self._preparation["window"].get("series_key")
        least = length + max(ahead for _, ahead in self._parts)
        places: dict[Any, list[int]] = {}
        for place, name in enumerate(_column(columns, key) if key else [None] * len(steps[self._numeric[0]])):
            places.setdefault(name, []).append(place)
        for name, own in places.items():
            if len(own) < least:
                raise RowError(f"got {len(own)} steps{f' of {name!r}' if key else ''}, expected {least} or more")
        windows = [[steps[name][own[-least:]][at : at + length] for name, at in self._parts] for own in places.values()]
        if any(at and math.isnan(row[-1]) for rows in windows for row, (_, at) in zip(rows, self._parts, strict=True)):
            raise RowError(f"one of the {least - length} steps after a window lacks a value that is known beforehand")
        return np.stack(windows).swapaxes(1, 2)

    def _table(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, np.ndarray]:
        feed = {name: numbers(_column(columns, name), name) for name in self._numeric}
        for kind, read in (("datetimes", moments), ("texts", texts)):
            names = (part["name"] for part in self._preparation.get(kind, ()))
            feed |= {name: read(_column(columns, name), name) for name in names}
        for part in self._preparation["categorical"]:
            feed[part["name"]] = categories(_column(columns, part["name"]), part["name"], part["dtype"])
        return feed

    def _outputs(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if characters := self._preparation["characters"]:
            return read_texts(self._session, feed["text"], characters["alphabet"], characters["length"])
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, feed), strict=True))


def read_texts(
    session: onnxruntime.InferenceSession, lines: Iterable[str], alphabet: str, length: int
) -> dict[str, np.ndarray]:
    """Return each text's most probable next character, its probability, and the mean bits per character of the text.

    A text is read as after the end of a line, in windows of `length` characters. The bits of an empty text are NaN.
    """
    readings = [_read(session, text, alphabet, length) for text in lines]
    kinds = {NEXT_CHARACTER: object, PROBABILITY: np.float64, BITS_PER_CHAR: np.float64}
    columns = zip(*readings, strict=True) if readings else [()] * len(kinds)
    return {name: np.array(values, kinds[name]) for name, values in zip(kinds, columns, strict=True)}


def _read(session: onnxruntime.InferenceSession, text: str, alphabet: str, length: int) -> tuple[str, float, float]:
    points = np.frombuffer(f"\n{text}".encode("utf-32-le"), dtype="<u4").astype(np.int64)
    bits = [
        session.run(["bits"], {"text": points[None, start : start + length + 1]})[0][0]
        for start in range(0, len(points) - 1, length)
    ]
    (chances,) = session.run(["log_probabilities"], {"text": points[None, -length:]})
    likeliest = int(chances[0, -1, 1:].argmax())
    mean = float(np.concatenate(bits).mean()) if bits else float("nan")
    return alphabet[likeliest], float(np.exp(chances[0, -1, 1 + likeliest])), mean


def open_session(path: Path, threads: int = 1) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session whose idle threads sleep: spinning costs four times the CPU of a small model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _column(columns: Mapping[str, Sequence[Any]], name: str) -> Sequence[Any]:
    if name not in columns:
        raise RowError(f"the model takes {name!r}, which not every row has: give null for a missing value")
    return columns[name]


def _plain(column: Any) -> list[Any]:
    """Return a column of a data frame, or an array, as plain values."""
    if hasattr(column, "isna"):  # pandas has several marks for missing
        column = column.astype(object).where(column.notna(), None)
    values = np.asarray(column)
    if values.dtype.kind == "M":  # nanoseconds would become plain numbers
        values = values.astype("datetime64[us]")
    return [value.item() if isinstance(value, np.generic) else value for value in values.astype(object).tolist()]


def _load_pyfunc(path: str) -> Predictor:
    """Load the model for MLflow; `path` is the model's file or its folder."""
    model = Path(path)
    return Predictor(open_session(model / "model.onnx" if model.is_dir() else model))
