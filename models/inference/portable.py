"""The part of inference that runs where Loopline is not installed: rows to inputs of a graph, and its predictions.

This file, `models/inference/row_values.py`, `models/inputs/image/pictures.py` and `models/sources/delimiter.py` need
numpy and ONNX Runtime alone, for pictures of any size Pillow too, and import nothing else of Loopline.
Their text goes into each registered version, where this one is MLflow's `pyfunc` loader, and into each edge bundle
(`models/export/bundle.py`); batch prediction and the server call them. So there is one rule for the values that a model
takes and one for the columns that it returns.

MLflow's ONNX loader passes on pandas' text columns, which fail, and has no column a class (mlflow 3.17.2, pandas 3.1).
"""

from __future__ import annotations

import base64
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from models.inference.row_values import (
    RowError,
    categories,
    check_known,
    checked_windows,
    columns_written,
    csv_columns,
    moments,
    number_cells,
    numbers,
    texts,
)
from models.inputs.image.pictures import levels_of, shape_of
from models.sources.delimiter import forms_by_column

if TYPE_CHECKING:
    import onnxruntime
    import pandas as pd

LABEL, LABELS, PROBABILITIES, PREDICTION = "label", "labels", "probabilities", "prediction"
NEXT_CHARACTER, PROBABILITY, BITS_PER_CHAR = "next_character", "probability", "bits_per_char"
COLUMN = "column"
"""Key of `model_config` that names the only column to return."""
MODEL_FILE = "model.onnx"
"""The served graph."""
ROWS_A_PASS = 1024
"""Most rows that a graph computes at once: with more of them a call takes as long for each row, and more memory."""
PASS_BYTES = 16 << 20
"""Most bytes of a tensor between a graph's inputs and outputs, of which it holds several: of 64 rows with 128 words a
transformer of width 32 holds 110 MB, of 1,024 rows 1.7 GB, and takes a tenth longer for each."""
ROW_BYTES_KEY = "loopline.row_bytes"
"""Key of the bytes of the largest tensor that the graph makes of one row, in the metadata of `model.onnx`."""
NO_TELEMETRY = "ORT_DISABLE_TELEMETRY"
"""Variable by which ONNX Runtime sends nothing about its use."""
PREPARATION_KEY = "loopline.preparation"
"""Key of the preparation schema, as JSON, in the metadata of `model.onnx`."""


_PREFIXES = {PROBABILITIES: PROBABILITY, PREDICTION: PREDICTION}
"""By a graph's last output: how the name of the column of each class or output begins."""


def column_names(outputs: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names of the columns that callers see, from the graph's outputs and the names of classes or outputs.

    `label` or `labels`, then `probability_<name>` of each; or `prediction_<name>` of each. Without names none.
    """
    return [*outputs[:-1], *(f"{_PREFIXES[outputs[-1]]}_{name}" for name in names)] if names else []


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
            return _records(names, outputs[PREDICTION].T.tolist())
        return _records(list(outputs), [values.tolist() for values in outputs.values()])
    chances = outputs[PROBABILITIES].astype(np.float64).T.tolist()
    labels = _label_lists(outputs[LABELS], names) if LABELS in outputs else outputs[LABEL]
    return _records(names, [labels.tolist(), *chances])


def _records(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    if len(names) != len(columns):
        raise ValueError(f"got {len(columns)} columns for the names {list(names)}")
    return [dict(zip(names, row)) for row in zip(*columns, strict=True)]  # noqa: B905 - `strict` for each row: +50 %


def rows_a_pass(session: onnxruntime.InferenceSession) -> int:
    """Return how many rows a graph is to compute at once; a graph from before it said what a row needs, the most."""
    row_bytes = int(session.get_modelmeta().custom_metadata_map.get(ROW_BYTES_KEY, 1))
    return max(1, min(ROWS_A_PASS, PASS_BYTES // max(1, row_bytes)))


def run_in_passes(
    session: onnxruntime.InferenceSession, names: Sequence[str], feed: Mapping[str, np.ndarray], size: int
) -> list[np.ndarray]:
    """Return the outputs `names` of a graph for all rows of a feed, in passes of `size` rows: see `rows_a_pass`.

    What a graph holds between its inputs and outputs, such as attention between all words of a text, then does not grow
    with the rows of a call.
    """
    rows = len(next(iter(feed.values())))
    if rows <= size:
        outputs: list[np.ndarray] = session.run(names, feed)
        return outputs
    parts = [
        session.run(names, {name: values[start : start + size] for name, values in feed.items()})
        for start in range(0, rows, size)
    ]
    return [np.concatenate(outputs) for outputs in zip(*parts, strict=True)]


class Predictor:
    """Predicts rows with a graph that has its preparation schema in its metadata; MLflow calls `predict`."""

    def __init__(self, session: onnxruntime.InferenceSession, column: str = "") -> None:
        """Read the preparation; `column` is the only one that `predict` returns, as a series, if it is not empty."""
        self._session, self._column = session, column
        self._preparation = json.loads(session.get_modelmeta().custom_metadata_map[PREPARATION_KEY])
        self._kind = self._preparation["kind"]
        target = self._preparation["target"]
        named = target["classes"] or [output["name"] for output in target.get("outputs", ())]
        self._output_names = [output.name for output in session.get_outputs()]
        self._names = column_names(self._output_names, named)
        self._inputs = _inputs_by_form(self._preparation)
        numbers = self._inputs["number"]
        self._parts = [(part.get("source") or part["name"], part.get("ahead", 0)) for part in numbers]
        self._numeric = list(dict.fromkeys(name for name, _ in self._parts))
        dates, commas = (self._preparation.get(key, ()) for key in ("dates", "decimal_commas"))
        self._forms = forms_by_column(dict(dates), commas)
        self._rows_a_pass = rows_a_pass(session)

    def predict(
        self, model_input: pd.DataFrame | Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame | pd.Series:
        """Return the columns of `column_names`, or `prediction`, of rows; of a chosen column its series.

        `model_input` has a column for each input, or arrays by input name. Text: a column `text`. `params` is ignored.

        Raises:
            RowError: The model does not accept a value.
        """
        import pandas as pd

        del params
        if self._kind == "table":
            feed = self._feed({str(name): _plain(values) for name, values in model_input.items()})
        elif self._kind == "text":
            feed = {"text": texts(_plain(model_input["text"]), "text")}
        elif self._kind == "series":
            length = self._preparation["window"]["length"]
            feed = {"series": checked_windows(np.asarray(model_input["series"]), length, self._parts)}
        else:
            feed = {"image": np.asarray(model_input["image"], np.uint8)}
        answer = pd.DataFrame(columns_of(self._outputs(feed), self._names))
        return answer[self._column] if self._column else answer

    def records(self, path: Path) -> list[dict[str, Any]]:
        """Predict the rows of a CSV or JSON file; of series, whose steps come oldest first, the last step of each.

        Raises:
            RowError: The file is neither, or the model does not accept a value.
        """
        content = path.read_bytes()
        if path.suffix.lower() in (".csv", ".tsv"):
            columns: dict[str, list[Any]] = csv_columns(content, self._preparation.get("na_is_text", ()))
            columns |= {
                name: number_cells(columns[name]) for name in {*self._numeric} - {*self._forms} if name in columns
            }
        else:
            rows = json.loads(content)
            rows = rows if isinstance(rows, list) else [rows]
            if not rows or not all(isinstance(row, dict) for row in rows):
                raise RowError("expected one object, or a list of some, of columns and values")
            columns = {name: [row[name] for row in rows] for name in rows[0] if all(name in row for row in rows)}
        predictions = records_of(self._outputs(self._feed(columns)), self._names)
        return [{name: None if value != value else value for name, value in row.items()} for row in predictions]

    def _feed(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, np.ndarray]:
        preparation, columns = self._preparation, columns_written(columns, self._forms)
        if self._kind == "table":
            return self._table(columns)
        if self._kind == "text":
            name = preparation["characters"]["column"]
            return {"text": texts(_column(columns, name), name)}
        if self._kind == "image":
            shape = self._session.get_inputs()[0].shape[1:]
            (part,) = self._inputs["image"]
            images = [base64.b64decode(image) for image in _column(columns, part["name"])]
            if part.get("image", {}).get("resize") is not None:
                return {"image": np.stack([_resized(image, part["image"], row) for row, image in enumerate(images, 1)])}
            return {"image": np.stack([np.frombuffer(image, np.uint8).reshape(shape) for image in images])}
        return {"series": self._last_windows(columns)}

    def _last_windows(self, columns: Mapping[str, Sequence[Any]]) -> np.ndarray:
        """Return the last window (series, step, feature) of each series, in the order in which the series appear."""
        steps = {name: numbers(_column(columns, name), name, "step") for name in self._numeric}
        length, key = self._preparation["window"]["length"], self._preparation["window"].get("series_key")
        num_future = max(ahead for _, ahead in self._parts)
        num_needed = length + num_future
        places: dict[Any, list[int]] = {}
        for place, name in enumerate(_column(columns, key) if key else [None] * len(steps[self._numeric[0]])):
            places.setdefault(name, []).append(place)
        suffixes = [f" of {name!r}" if key else "" for name in places]
        for series, steps_of_series in zip(suffixes, places.values(), strict=True):
            if len(steps_of_series) < num_needed:
                raise RowError(f"got {len(steps_of_series)} steps{series}, expected {num_needed} or more")
            self._check_future(columns, steps_of_series[len(steps_of_series) - num_future :], series)
        rows = [
            [steps[name][steps_of_series[-num_needed:]][offset : offset + length] for name, offset in self._parts]
            for steps_of_series in places.values()
        ]
        windows = np.stack(rows).swapaxes(1, 2)
        check_known(windows[:, -1], self._parts, lambda index: f"the last window{suffixes[index]}")
        return windows

    def _check_future(self, columns: Mapping[str, Sequence[Any]], future: Sequence[int], series: str) -> None:
        """Refuse a target in the steps after a window: the file would hold the past alone."""
        target = self._preparation["target"]["name"]
        values = [columns[target][step] for step in future] if target in columns else []
        if any(value is not None and value == value for value in values):
            num = len(future)
            raise RowError(
                f"the last {num} steps{series} have a {target!r}, but they are read as those after the window, of "
                f"which it is not known: give the {num} steps after the window too, with null for {target!r}"
            )

    def _table(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, np.ndarray]:
        feed: dict[str, np.ndarray] = {}
        for form, read in (("number", numbers), ("time", moments), ("text", texts)):
            names = (part["name"] for part in self._inputs[form])
            feed |= {name: read(_column(columns, name), name) for name in names}
        for part in self._inputs["category"]:
            feed[part["name"]] = categories(_column(columns, part["name"]), part["name"], part["dtype"])
        return feed

    def _outputs(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if characters := self._preparation["characters"]:
            return read_texts(self._session, feed["text"], characters["alphabet"], characters["length"])
        names = self._output_names
        return dict(zip(names, run_in_passes(self._session, names, feed, self._rows_a_pass), strict=True))


def _resized(content: bytes, image: Mapping[str, Any], row: int) -> np.ndarray:
    try:
        return levels_of(content, shape_of(image))
    except ValueError as error:
        raise RowError(f"row {row}, column {image['column']!r}: got {error}: give what is expected") from error


def _inputs_by_form(preparation: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the inputs of a preparation by the form in which rows give them; version 1 had a list for each kind."""
    forms: dict[str, list[dict[str, Any]]] = {form: [] for form in ("number", "time", "category", "text", "image")}
    for part in preparation.get("inputs", ()):
        forms.setdefault(part["form"], []).append(part)
    if preparation["version"] == 1:
        fields = {"number": "numeric", "time": "datetimes", "category": "categorical", "text": "texts"}
        forms |= {form: list(preparation.get(field, ())) for form, field in fields.items()}
        pixels = preparation["pixels"]
        forms["image"] = [{"name": pixels["image"]["column"]}] if pixels else []
    return forms


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


def next_chances(session: onnxruntime.InferenceSession, lines: Iterable[str], length: int) -> np.ndarray:
    """Return the chance of each character of the alphabet to follow each text, float64 (text, character)."""
    chances = [_log_chances(session, _points(text), length) for text in lines]
    return np.exp(np.stack(chances).astype(np.float64))


def _points(text: str) -> np.ndarray:
    return np.frombuffer(f"\n{text}".encode("utf-32-le"), dtype="<u4").astype(np.int64)


def _log_chances(session: onnxruntime.InferenceSession, points: np.ndarray, length: int) -> np.ndarray:
    (chances,) = session.run(["log_probabilities"], {"text": points[None, -length:]})
    return np.asarray(chances[0, -1, 1:])


def _read(session: onnxruntime.InferenceSession, text: str, alphabet: str, length: int) -> tuple[str, float, float]:
    points = _points(text)
    bits = [
        session.run(["bits"], {"text": points[None, start : start + length + 1]})[0][0]
        for start in range(0, len(points) - 1, length)
    ]
    chances = _log_chances(session, points, length)
    likeliest = int(chances.argmax())
    mean = float(np.concatenate(bits).mean()) if bits else float("nan")
    return alphabet[likeliest], float(np.exp(chances[likeliest])), mean


def open_session(path: Path, threads: int = 1) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session whose idle threads sleep: spinning costs four times the CPU of a small model.

    ONNX Runtime sends telemetry to its maker unless a variable forbids it when it is imported, so that is set first
    (`disable_telemetry_events` still looks up the collector: 1.31.1). A value that is set already is kept.
    """
    os.environ.setdefault(NO_TELEMETRY, "1")
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


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> Predictor:
    """Load the model for MLflow.

    Args:
        path: The model's file or its folder.
        model_config: `column`, such as `label`: the only column to return. MLflow's evaluation of a classifier takes no
            more than one (mlflow 3.17.2).
    """
    model, column = Path(path), (model_config or {}).get(COLUMN, "")
    return Predictor(open_session(model / MODEL_FILE if model.is_dir() else model), column)
