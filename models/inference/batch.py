"""Batch inference: rows and their predictions, with columns for the caller and columns for the prediction log."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from models.data.clean import made_features
from models.data.preparation import Preparation
from models.data.row_wise import is_row_wise
from models.data.series import SeriesRows, StepNames, series_rows, window_ends
from models.errors import DataError, TrainingError
from models.feedback.columns import INPUT, RAW
from models.inference import arrow_columns
from models.inference.forms import with_forms
from models.inference.loaded_model import LoadedModel, input_schema
from models.inference.names import scores_of
from models.inference.portable import LABELS
from models.inference.predict import Feed
from models.inference.row_values import RowError
from models.inference.windows import SeriesSchema, known_window
from models.inputs.image.files import with_pixels
from models.inputs.record import CategoryRecord, Form, InputRecord
from models.inputs.types import is_number
from models.kinds.data_kind import Kind, PerDataKind
from models.project_spec.blocks import Data
from models.sources.row_batches import concatenated, row_batches, sized
from models.sources.whole_numbers import MOST_EXACT

PART_ROWS = 1 << 16
SERIES_BATCH = 4096
PART_BYTES = 1 << 26
"""Most bytes of the pixels of one part."""
SHOWN = b"loopline.shown"
"""Metadata key of a part: the number of its first columns, which are for the caller."""
ORIGIN = "batch"


@dataclass
class ReadOptions:
    """How rows are read for a model.

    `types`: types of the columns of CSV files. `base`: the folder that the spec's references are relative to.
    `folder`: the folder that is read, if the files are of one. `notes`: messages for the user, added while rows are
    read.
    """

    data: Data
    preparation: Preparation
    base: Path
    types: Mapping[str, pa.DataType]
    notes: list[str] = field(default_factory=list)
    folder: Path | None = None

    def note(self, text: str) -> None:
        """Add a note, unless it is there already."""
        if text not in self.notes:
            self.notes.append(text)


def examples(reading: ReadOptions, files: Sequence[Path], display_name: str) -> Iterator[tuple[pa.Table, Feed]]:
    """Return the raw rows, some tens of thousands at a time, with the inputs of the model.

    A row of a series is the last step of a window.

    Args:
        reading: The read options.
        files: Files that are read one after the other, as one table.
        display_name: Name of the rows in messages.

    Raises:
        DataError: The model does not accept a value.
        UserCodeError: The spec's own feature function failed.
    """
    return _EXAMPLES[reading.preparation.kind](reading, files, display_name)


def _rows(reading: ReadOptions, files: Sequence[Path], display_name: str) -> Iterator[tuple[pa.Table, Feed]]:
    batches = _batches(reading, files, input_schema(reading.preparation).columns)
    yield from _fed(reading, batches, display_name)


def _pictures(reading: ReadOptions, files: Sequence[Path], display_name: str) -> Iterator[tuple[pa.Table, Feed]]:
    batches = _batches(reading, files, input_schema(reading.preparation).columns)
    yield from _fed(
        reading, _with_pixels(reading, batches, reading.folder or files[0].parent, display_name), display_name
    )


def _fed(reading: ReadOptions, batches: Iterator[pa.Table], display_name: str) -> Iterator[tuple[pa.Table, Feed]]:
    schema, first = input_schema(reading.preparation), 1
    for rows, featured in _featured(reading, batches):
        schema.check_header(featured.column_names, display_name)
        yield rows, schema.from_arrow(featured, first, display_name)
        first += rows.num_rows


def _with_pixels(
    reading: ReadOptions, batches: Iterator[pa.Table], folder: Path, display_name: str
) -> Iterator[pa.Table]:
    """Yield the rows with pictures of any size as plain bytes, if the model takes such; paths count from `folder`."""
    image, first = reading.preparation.required_pixels.image, 1
    for rows in batches:
        try:
            yield with_pixels(rows, image, folder, first)
        except DataError as error:
            raise DataError(f"{display_name}: {error}") from error
        first += rows.num_rows


def csv_types(
    column_inputs: list[InputRecord], raw: pa.Schema | None, *, is_made: bool = False
) -> dict[str, pa.DataType]:
    """Return the column types for CSV files: numeric inputs are numbers, others as in the project's raw table.

    Args:
        column_inputs: The inputs of the model that are columns.
        raw: The schema of the project's raw table, if it is known.
        is_made: Whether a feature function reads the rows first: categories have the types of training then, else text.
    """
    types = {field.name: _plain(field.type) for field in raw or []}
    for part in column_inputs:
        types |= _CSV_TYPES[part.form](part, types.get(part.column), is_made)
    return types


def _csv_number(part: InputRecord, raw: pa.DataType | None, _: bool) -> dict[str, pa.DataType]:
    return {} if raw is not None and pa.types.is_boolean(raw) else {part.column: pa.float64()}


def _csv_time(part: InputRecord, _: pa.DataType | None, is_made: bool) -> dict[str, pa.DataType]:
    return {} if is_made else {part.name: pa.string()}


def _csv_category(part: CategoryRecord, raw: pa.DataType | None, is_made: bool) -> dict[str, pa.DataType]:
    if is_made and part.dtype == "integer" and _are_whole_beyond_float64(part, raw):
        return {}
    kinds = {"integer": pa.float64(), "boolean": pa.bool_()}
    return {part.name: kinds.get(part.dtype, pa.string()) if is_made else pa.string()}


def _csv_text(part: InputRecord, _: pa.DataType | None, __: bool) -> dict[str, pa.DataType]:
    return {part.name: pa.string()}


_CSV_TYPES: dict[Form, Callable[[Any, pa.DataType | None, bool], dict[str, pa.DataType]]] = {
    "number": _csv_number,
    "time": _csv_time,
    "category": _csv_category,
    "text": _csv_text,
}
"""The type of a column of CSV files, by the form of its values, from the raw type; empty where that stays."""


def _are_whole_beyond_float64(part: CategoryRecord, kind: pa.DataType | None) -> bool:
    """Return True if training read integers of which a float64 does not hold each."""
    if kind is None or not pa.types.is_integer(kind):
        return False
    return any(text.lstrip("-").isdecimal() and abs(int(text)) > MOST_EXACT for text in part.categories)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type if text can be parsed as it, else the text type."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    readable = is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    return kind if readable else pa.string()


def part_of(model: LoadedModel, rows: pa.Table, feed: Feed, ids: Any, moment: datetime, data: Data) -> pa.Table:
    """Return a table with the caller's columns, then the log's; its metadata `SHOWN` is the number of the first.

    Those of a window begin with its series and the time of its last step, unless their names are taken.

    Args:
        model: The version that predicts.
        rows: The rows; of series the last step of each window.
        feed: The rows as inputs of the model.
        ids: Ids of the rows.
        moment: Time of the predictions.
        data: The spec's data block.

    Raises:
        TrainingError: The model cannot run on these rows.
    """
    try:
        answer = model.answer(feed)
    except Exception as error:
        raise TrainingError(
            f"the exported model cannot run on these rows ({error}): give rows like those that it was trained on, or "
            "run the loop again"
        ) from error
    scores = scores_of(answer.outputs, model.preparation.task)
    kinds = {LABELS: pa.list_(pa.string())}
    score_columns = {
        name: pa.array(values, kinds.get(name), from_pandas=True) for name, values in model.columns(answer).items()
    }
    series = model.preparation.series
    named: list[str] = (
        [name for name in (series.key, series.time) if name and name in rows.column_names] if series else []
    )
    window = {name: rows.column(name) for name in named}  # a made id does not say which it is
    columns_of_model = {"id": ids, **score_columns, "version": pa.array([model.version] * rows.num_rows, pa.string())}
    columns = {"id": ids, **window} | columns_of_model
    metadata = {SHOWN: str(len(columns)).encode()}
    columns |= _logged(model.preparation.kind, scores, rows, feed, moment, data)
    return pa.table(columns).replace_schema_metadata(metadata)


def shown_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of a part that are for the caller."""
    return list(schema.names[: int(schema.metadata[SHOWN])])


def logged_columns(schema: pa.Schema, redacted: Collection[str] = ()) -> list[str]:
    """Return the columns of a part that the prediction log stores; `redacted`: the spec's `serve.log.redact`."""
    num_window_columns = int(schema.metadata[SHOWN])
    left_out = {f"{kind}{name}" for kind in (INPUT, RAW) for name in redacted}
    return ["id", "version", *(name for name in schema.names[num_window_columns:] if name not in left_out)]


def _part_rows(preparation: Preparation) -> int:
    if preparation.pixels is None:
        return PART_ROWS
    image = preparation.pixels.image
    return max(1, min(PART_ROWS, PART_BYTES // (image.height * image.width * image.channels)))


def _batches(reading: ReadOptions, files: Sequence[Path], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows; from the first cell on that is not of its column's type, the input columns are text.

    A cell that Arrow does not read may be a value all the same (`true`, `NA ` or `+1` in a column of numbers).
    """
    size, num_batches = _part_rows(reading.preparation), 0
    try:
        for rows in _read(reading, files, reading.types, size):
            yield rows
            num_batches += 1
    except DataError:
        if reading.data.features.make:
            raise
        as_text = {**reading.types, **dict.fromkeys(columns, pa.string())}
        yield from itertools.islice(_read(reading, files, as_text, size), num_batches, None)


def _read(
    reading: ReadOptions, files: Sequence[Path], types: Mapping[str, pa.DataType], size: int
) -> Iterator[pa.Table]:
    """Yield rows of files as a source gives them, with dates as times."""
    dates, first_row = reading.preparation.forms, 1
    types = {**types, **dict.fromkeys(dates, pa.string())}
    for rows in row_batches(files, types, size, reading.folder, reading.preparation.na_is_text):
        yield with_forms(rows, dates, first_row)
        first_row += rows.num_rows


def _featured(reading: ReadOptions, batches: Iterator[pa.Table]) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield the raw rows, and the rows with the made columns; in pieces if the feature function works row by row."""
    make, first = reading.data.features.make, next(batches, None)
    if first is None:
        return
    batches = itertools.chain([first], batches)
    if not make:
        yield from ((rows, rows) for rows in batches)
        return
    if is_row_wise(first, make, reading.base):
        reading.note(f"data.features.make {make}: called on pieces (it makes the same of rows by themselves)")
        for rows in batches:
            yield rows, made_features(rows, make, reading.base)
        return
    reading.note(
        f"data.features.make {make}: called on the whole at once, in memory (what it makes of a row depends on others)"
    )
    whole = concatenated(list(batches))
    featured = made_features(whole, make, reading.base)
    yield from zip(sized(iter([whole]), PART_ROWS), sized(iter([featured]), PART_ROWS), strict=True)


def _windows(reading: ReadOptions, files: Sequence[Path], display_name: str) -> Iterator[tuple[pa.Table, Feed]]:
    tables = list(_read(reading, files, reading.types, PART_ROWS))
    if not tables:
        return
    whole, preparation, schema = concatenated(tables), reading.preparation, SeriesSchema(reading.preparation)
    schema.check_header(whole.column_names, display_name)
    values = np.stack(list(arrow_columns.columns(whole, preparation, 1, display_name).values()), axis=1)
    rows, every = _ordered(whole, reading, display_name)
    names = StepNames(rows.table, _time_column(reading), known_window(preparation).series_key)
    try:
        steps, ends = schema.with_future(
            values, rows.steps, rows.positions, every, lambda index: f"step {names.at(index)}"
        )
    except (DataError, RowError) as error:
        raise DataError(f"{display_name}: {error}") from error
    if len(ends) < len(every):
        reading.note(
            f"{len(every) - len(ends):,} windows get no prediction: the model takes what is known beforehand of the "
            f"{preparation.num_future} steps after a window, and these lack some of them"
        )
    for start in range(0, len(ends), SERIES_BATCH):
        piece = ends[start : start + SERIES_BATCH]
        yield rows.table.take(pa.array(piece)), schema.feed(steps, piece)


_EXAMPLES: PerDataKind[Callable[[ReadOptions, Sequence[Path], str], Iterator[tuple[pa.Table, Feed]]]] = {
    "table": _rows,
    "image": _pictures,
    "series": _windows,
    "text": _rows,
}


def _time_column(reading: ReadOptions) -> str:
    series = reading.preparation.series
    return series.time if series else str(reading.data.split.column)


def _ordered(rows: pa.Table, reading: ReadOptions, display_name: str) -> tuple[SeriesRows, np.ndarray]:
    """Return the steps of all series in order, and the last step of each window without a gap."""
    preparation = reading.preparation
    try:
        ordered = series_rows(rows, known_window(preparation), _time_column(reading))
        ends = window_ends(ordered, preparation.required_window.length)
    except DataError as error:
        raise DataError(f"{display_name}: {error}") from error
    if ordered.num_gaps:
        reading.note(f"{ordered.num_gaps:,} gaps in the steps: no window spans one")
    if ordered.num_inserted:
        reading.note(f"{ordered.num_inserted:,} missing steps were inserted without values")
    return ordered, ends


def _logged(
    kind: Kind, scores: np.ndarray, raw_rows: pa.Table, feed: Feed, moment: datetime, data: Data
) -> dict[str, Any]:
    """Return the columns of the prediction log, without id and version."""
    rows = raw_rows.num_rows
    columns: dict[str, Any] = {
        "at": pa.array([moment] * rows, pa.timestamp("us", tz="UTC")),
        "origin": pa.array([ORIGIN] * rows, pa.string()),
        **score_columns(scores),
    }
    inputs = _LOGGED_INPUTS[kind](feed)
    columns |= {f"{INPUT}{name}": pa.array(values) for name, values in inputs.items()}
    is_raw = data.features.make is not None  # a made column may have the name of a raw one
    for name in raw_rows.column_names:
        if (is_raw or name not in inputs) and name not in data.targets:
            columns[f"{RAW}{name}"] = raw_rows.column(name)
    return columns


_LOGGED_INPUTS: PerDataKind[Callable[[Feed], Feed]] = {
    "table": lambda feed: feed,
    "image": lambda feed: {},
    "series": lambda feed: {},
    "text": lambda feed: {},
}
"""The inputs of the model that the log has a column of."""


def score_columns(scores: np.ndarray) -> dict[str, pa.Array]:
    """Return the columns `score` and `scores` of logged values (row,) or (row, class); one of them is null."""
    lists = pa.list_(pa.float64())
    if scores.ndim == 1:
        return {"score": pa.array(scores), "scores": pa.nulls(len(scores), lists)}
    offsets = pa.array(range(0, scores.size + 1, scores.shape[1]), pa.int32())
    return {"score": pa.nulls(len(scores), pa.float64()), "scores": pa.ListArray.from_arrays(offsets, scores.ravel())}
