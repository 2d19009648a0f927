"""Conversion of the servers' log records (`models.serving.records`) to rows of prediction log and label store."""

from __future__ import annotations

import base64
import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from models.feedback.columns import INPUT, LABEL, RAW, SENT
from models.sources.row_batches import concatenated

ORIGIN = "serve"
MOST_RAW = 200
_TIME = pa.timestamp("us", tz="UTC")
_BYTES = "bytes"


def prediction_rows(records: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows of the prediction log, in the order of the records, with the columns of batch prediction.

    A missing number is NaN, as in the graph's input; a column that a request lacked is null. Of the columns that are no
    inputs only the `MOST_RAW` most frequent names are stored, so that requests cannot make the table arbitrarily wide.
    """
    records = list(records)
    named = Counter(name for record in records for name in record["raw"])
    frequent = {name for name, _ in named.most_common(MOST_RAW)}
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        raw = {name: values for name, values in record["raw"].items() if name in frequent}
        extra_columns = (*record.get("pictures", ()), None, *record.get("sent", ()))
        names = (*record["names"], None, *record["texts"], None, *raw, None, *extra_columns)
        shape = (record["version"], "scores" in record, *names)
        groups.setdefault(shape, []).append({**record, "raw": raw})
    return concatenated([_table(group) for group in groups.values()])


def label_rows(records: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return `id`, `label`, `at` and `by` of labels, in order of arrival."""
    ordered = sorted(records, key=lambda record: int(record["at"]))
    columns = {
        "id": pa.array(_chained(ordered, "ids"), pa.string()),
        LABEL: pa.array(_chained(ordered, "labels"), pa.string()),
        "at": _repeated(ordered, "at", pa.int64()).cast(_TIME),
        "by": _repeated(ordered, "by", pa.string()),
    }
    return pa.table(columns)


def _table(records: Sequence[Mapping[str, Any]]) -> pa.Table:
    ids = _chained(records, "ids")
    columns = {
        "id": pa.array(ids, pa.string()),
        "at": _repeated(records, "at", pa.int64()).cast(_TIME),
        "version": _repeated(records, "version", pa.string()),
        "origin": pa.array([ORIGIN] * len(ids), pa.string()),
    }
    if "score" in records[0]:
        columns["score"] = pa.array(np.array(_chained(records, "score"), np.float64))
    if "scores" in records[0]:
        columns["scores"] = pa.array(_chained(records, "scores"), pa.list_(pa.float64()))
    numbers = _numbers(records)
    columns |= {f"{INPUT}{name}": pa.array(numbers[position]) for position, name in enumerate(records[0]["names"])}
    for name in records[0]["texts"]:
        texts = [value for record in records for value in record["texts"][name]]
        columns[f"{INPUT}{name}"] = pa.array(texts, pa.string())
    for name in records[0]["raw"]:
        columns[f"{RAW}{name}"] = _raw([value for record in records for value in record["raw"][name]])
    for kind, prefix in (("pictures", RAW), ("sent", SENT)):
        for name in records[0].get(kind, ()):
            columns[f"{prefix}{name}"] = _own([value for record in records for value in record[kind][name]])
    return pa.table(columns)


def _chained(records: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    return [value for record in records for value in record[name]]


def _repeated(records: Iterable[Mapping[str, Any]], name: str, kind: pa.DataType) -> pa.Array:
    """Return one value of each record, repeated for each of its rows."""
    return pa.array([record[name] for record in records for _ in record["ids"]], kind)


def _numbers(records: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Return the numeric inputs (column, row), with NaN for missing: JSON has no NaN and uses null."""
    names = len(records[0]["names"])
    shaped = [np.array(record["numbers"], np.float64).reshape(names, len(record["ids"])) for record in records]
    return np.concatenate(shaped, axis=1)


def _own(values: list[Any]) -> pa.Array:
    """Return bytes or texts that the server wrote itself."""
    return pa.array([base64.b64decode(value[_BYTES]) if isinstance(value, dict) else value for value in values])


def _raw(values: list[Any]) -> pa.Array:
    """Return callers' numbers, texts or booleans; as text if their types are mixed, or for lists and objects."""
    with contextlib.suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        cells = pa.array(values)
        if not pa.types.is_nested(cells.type):
            return cells
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
