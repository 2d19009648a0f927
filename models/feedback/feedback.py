"""Labelled predictions joined to the raw table of the source: rows with the source's own columns and types.

Which rows they are is stored beside the table, not in it, so that no model can learn from the origin of a row.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.errors import DataError
from models.feedback.columns import INPUT, LABEL, RAW
from models.feedback.label_text import label_columns
from models.identity.hashing import missing
from models.inputs.types import as_text, is_bytes, is_number, is_text
from models.project_spec.blocks import Data
from models.sources.whole_numbers import fits_float64

_ORIGIN_COLUMNS = {
    "id": "id",
    "version": "version",
    "at": "predicted_at",
    "labelled_at": "labelled_at",
    "by": "labelled_by",
}


@dataclass(frozen=True)
class JoinedFeedback:
    """The source's rows and then those of labelled predictions, in `table`.

    `origin`: for each labelled prediction its `row` in the table, `id`, `version`, `predicted_at`, `labelled_at`,
    `labelled_by`. `known`: number of rows left out because the source has them by now; `unfit`: number left out because
    a
    value does not fit its column's type, or the value that the split needs is missing.
    """

    table: pa.Table
    origin: pa.Table
    known: int
    unfit: int


def with_feedback(table: pa.Table, labelled: pa.Table, data: Data) -> JoinedFeedback:
    """Append labelled predictions to the raw table as further rows.

    An integer column becomes a float column if a predicted row has a fraction there. A column that the predicted rows
    lack
    is missing in them; if the data is split by time, a missing time is replaced by the time of the prediction. A row is
    known when the source has a row with its id (`data.id`); without ids no row is known, because two rows may hold the
    same values.

    Args:
        table: The source's raw table.
        labelled: Rows of the prediction log with `label`, `labelled_at` and `by`.
        data: The spec's data block.

    Raises:
        DataError: The predicted rows share no column with the source.
    """
    logged_columns = set(labelled.column_names)
    carried = [
        name
        for name in table.column_names
        if name not in data.targets and logged_columns & {f"{RAW}{name}", f"{INPUT}{name}"}
    ]
    if not carried:
        raise DataError(
            "labelled predictions: their rows have no column of the source, which has "
            f"{', '.join(table.column_names)}: were they made by another project? `retrain.feedback: false` leaves "
            "them out"
        )
    table = table.cast(_widened(table, labelled, carried, data))
    rows, unfit = _as_source(table.schema, labelled, carried, data)
    rows, is_in_source = _identified(table, rows, labelled.column("id"), data.id)
    rows, unfit = _with_time(rows, labelled.column("at"), data, unfit)
    usable = pa.array(~is_in_source & ~unfit)
    origin = labelled.select(list(_ORIGIN_COLUMNS)).rename_columns(list(_ORIGIN_COLUMNS.values())).filter(usable)
    places = pa.array(np.arange(table.num_rows, table.num_rows + origin.num_rows), pa.int64())
    return JoinedFeedback(
        pa.concat_tables([table, rows.filter(usable)]),
        origin.add_column(0, "row", places),
        int((is_in_source & ~unfit).sum()),
        int(unfit.sum()),
    )


def _widened(table: pa.Table, labelled: pa.Table, carried: Sequence[str], data: Data) -> pa.Schema:
    """Return the source's schema, with integer columns as floats where callers sent fractions.

    A column with numbers that no float64 holds exactly stays as it is: rows with fractions do not fit it.
    """
    schema, names = table.schema, set(labelled.column_names)
    for position, field in enumerate(schema):
        if field.name not in carried or field.name == data.id or not pa.types.is_integer(field.type):
            continue
        columns = [labelled.column(f"{prefix}{field.name}") for prefix in (INPUT, RAW)
                 if f"{prefix}{field.name}" in names]  # fmt: skip
        decimals = any(pc.any(_are_broken(_cast(column, pa.float64())[0])).as_py() for column in columns)
        if decimals and fits_float64(table.column(field.name)):
            schema = schema.set(position, field.with_type(pa.float64()))
    return schema


def _are_broken(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.and_(pc.is_finite(values), pc.not_equal(values, pc.floor(values)))


def _as_source(
    schema: pa.Schema, labelled: pa.Table, carried: Sequence[str], data: Data
) -> tuple[pa.Table, np.ndarray]:
    """Return the rows with the source's columns and types, and which of them do not fit (rows,)."""
    unfit = np.zeros(labelled.num_rows, dtype=bool)
    columns = {}
    times = {field.name for field in schema if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)}
    times |= {name for name, kind in data.features.kinds.items() if kind == "datetime"}
    labels = labelled.column(LABEL)
    targets = label_columns(labels, data.targets) if len(data.targets) > 1 else {data.targets[0]: labels}
    logged = set(labelled.column_names)
    for field in schema:
        column = pa.chunked_array([pa.nulls(labelled.num_rows, field.type)])
        names = [f"{prefix}{field.name}" for prefix in (INPUT, RAW)] if field.name in carried else []
        if field.name == data.id:  # an id of another type is not in the source
            names = []
            column = _cast(labelled.column("id"), field.type)[0]
        values = [labelled.column(name) for name in names if name in logged]
        if field.name in targets:
            values = [pa.chunked_array([targets[field.name]]) if len(data.targets) > 1 else labels]
        for each in values:  # raw values override the graph's inputs
            is_time = field.name in times and pa.types.is_floating(each.type)
            cast, bad = _cast(_as_times(each, field.type) if is_time else each, field.type)
            column, unfit = pc.coalesce(cast, column), unfit | bad
        columns[field.name] = column
    return pa.table(columns, schema=schema), unfit


def _as_times(seconds: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return seconds since 1970 as times of the source's type: numbers stay, texts become ISO 8601."""
    if is_number(kind):
        return seconds
    micros = pc.multiply(pc.if_else(pc.is_nan(seconds), None, seconds), 1e6).cast(pa.int64(), safe=False)
    times = micros.cast(pa.timestamp("us", getattr(kind, "tz", None)))
    return pc.strftime(times, "%Y-%m-%dT%H:%M:%S") if is_text(kind) else times


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, np.ndarray]:
    """Return values as another type, and which cannot be cast; missing ones, in the log "" and NaN, become null."""
    column = column.filter(pa.array(np.ones(len(column), dtype=bool)))  # at least one chunk
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    elif pa.types.is_string(column.type):
        column = pc.if_else(pc.equal(column, ""), None, column)
    good = np.zeros(len(column), dtype=bool)
    if not (pa.types.is_string(column.type) and is_bytes(kind)):
        with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return column.cast(kind), good
    cells = [_value(value, kind) for value in column]
    cast = pa.chunked_array([pa.array([value.as_py() if value is not None else None for value in cells], kind)])
    return cast, (cast.is_null().to_numpy() & column.is_valid().to_numpy())


def _value(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    """Return the value as another type; None if it cannot be cast."""
    try:
        return pa.scalar(_parsed(value.as_py(), kind), kind) if pa.types.is_string(value.type) else value.cast(kind)
    except (ValueError, TypeError, pa.ArrowNotImplementedError):
        return None


def _parsed(text: str, kind: pa.DataType) -> Any:
    """Parse a text as a type: bytes are in base64, lists and structs in JSON, times of day and durations in ISO."""
    if is_bytes(kind):
        return base64.b64decode(text, validate=True)
    if pa.types.is_nested(kind):
        return json.loads(text)
    if pa.types.is_time(kind):
        return time.fromisoformat(text)
    if pa.types.is_duration(kind) and not text.lstrip("-").isdecimal():
        import pandas as pd

        return pd.Timedelta(text).to_pytimedelta()
    return int(text) if pa.types.is_duration(kind) else pa.scalar(text).cast(kind).as_py()


def _identified(
    table: pa.Table, rows: pa.Table, ids: pa.ChunkedArray, id_column: str | None
) -> tuple[pa.Table, np.ndarray]:
    """Return the rows with their ids, and which the source has by now (rows,).

    In a column of numbers `00001` is 1, so it is known where 1 is there; but it names no row of its own: another
    prediction may be called 1.
    """
    if id_column is None or id_column not in table.column_names:
        return rows, np.zeros(len(ids), dtype=bool)
    cast = rows.column(id_column)
    texts = as_text(cast)
    is_in_source: np.ndarray = pc.is_in(
        texts, value_set=as_text(table.column(id_column)).combine_chunks(), skip_nulls=True
    ).to_numpy()
    source_ids = pc.if_else(pc.equal(texts, ids.cast(pa.string())), cast, pa.scalar(None, cast.type))
    return rows.set_column(rows.column_names.index(id_column), id_column, source_ids), is_in_source


def _with_time(
    rows: pa.Table, predicted: pa.ChunkedArray, data: Data, unfit: np.ndarray
) -> tuple[pa.Table, np.ndarray]:
    """Fill in a missing split time with the time of the prediction; rows that the split cannot place become unfit."""
    name = data.split.column
    if name is None or name not in rows.column_names:
        return rows, unfit
    column = rows.column(name)
    if data.split.by == "time" and pa.types.is_temporal(column.type) and not pa.types.is_time(column.type):
        column = pc.coalesce(column, predicted.cast(column.type, safe=False))
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows, unfit | missing(column)
