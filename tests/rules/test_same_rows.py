"""The rule: what a model was trained on is what it gets for the same rows, whichever way they come to it.

The way that training reads is compared with each way to predict: a table, JSON, CSV over HTTP, and files.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from models.data.preparation import Preparation
from models.data.prepare import prepare_table
from models.inference.batch import ReadOptions, csv_types, examples
from models.inference.input_schema import InputSchema
from models.inference.loaded_model import input_schema
from models.project_spec.blocks import Spec
from models.project_spec.reserved_columns import ROW_COLUMN
from models.serving.mlflow_scoring import scoring_of_csv, scoring_of_json
from models.sources.read import read_source

ROWS = 60
MOMENTS = [datetime(2026, 1, 1) + timedelta(hours=12 * (row % 8)) for row in range(ROWS)]
SOURCE = pa.table(
    {
        "price": pa.array([Decimal(row * 37) / 100 for row in range(ROWS)], pa.decimal128(9, 2)),  # of them 2.59
        "rate": pa.array([[Decimal("7.14"), Decimal("3"), None][row % 3] for row in range(ROWS)], pa.decimal128(9, 2)),
        "zone": pa.array([moment.replace(tzinfo=UTC) for moment in MOMENTS], pa.timestamp("us", "Europe/Paris")),
        "shift": pa.array([None if row % 9 == 4 else moment for row, moment in enumerate(MOMENTS)], pa.timestamp("ns")),
        "day": pa.array([date(2026, 1, 1 + row % 5) for row in range(ROWS)]),
        "when": pa.array(MOMENTS, pa.timestamp("s")),
        "colour": pa.array([["red", "", None, "1", " a"][row % 5] for row in range(ROWS)]).dictionary_encode(),
        "grade": pa.array([[7, 1, None][row % 3] for row in range(ROWS)]).dictionary_encode(),
        "code": pa.array([2**53 + row % 3 for row in range(ROWS)]),
        "late": pa.array([[True, False, None][row % 3] for row in range(ROWS)]),
        "y": pa.array(["yes" if row % 4 else "no" for row in range(ROWS)]),
    }
)
KINDS = {
    **dict.fromkeys(["rate", "zone", "shift", "day", "code"], "categorical"),
    "when": "datetime",
    "price": "numeric",
}
SPEC = Spec.model_validate(
    {"name": "t", "data": {"source": "a.parquet", "target": "y", "features": {"kinds": KINDS}, "split": {"seed": 1}}}
)
Feed = dict[str, np.ndarray]


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else float(value) if hasattr(value, "scaleb") else value


def _csv(table: pa.Table) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([table.column_names, *(map(_json, row.values()) for row in table.to_pylist())])
    return text.getvalue()


def _lines(table: pa.Table) -> str:
    return "\n".join(json.dumps({name: _json(value) for name, value in row.items()}) for row in table.to_pylist())


def _posted(rows: pa.Table, schema: InputSchema) -> Feed:
    return scoring_of_json(f"[{_lines(rows).replace(chr(10), ',')}]".encode()).rows(schema).feed


WAYS: dict[str, Callable[[pa.Table, InputSchema], Feed]] = {
    "Arrow": lambda rows, schema: schema.from_arrow(rows),
    "JSON": _posted,
    "CSV": lambda rows, schema: scoring_of_csv(_csv(rows).encode()).rows(schema).feed,
}
FILES: dict[str, Callable[[pa.Table, Path], object]] = {
    ".csv": lambda rows, path: path.write_text(_csv(rows)),
    ".parquet": lambda rows, path: pq.write_table(rows, path),
    ".feather": lambda rows, path: pyarrow.feather.write_feather(rows, path),
    ".jsonl": lambda rows, path: path.write_text(_lines(rows)),
    ".pandas.parquet": lambda rows, path: rows.to_pandas().to_parquet(path),
}


def _trained(path: Path) -> tuple[pa.Table, Preparation, Feed]:
    """Return the table that training reads from a file, its preparation, and what the model is trained on, by input."""
    FILES[path.suffix](SOURCE, path)
    raw = read_source(path)
    rows, preparation = prepare_table(raw, SPEC, path.parent)
    rows = rows.sort_by(ROW_COLUMN)
    assert {part.name for part in preparation.column_inputs} == {*SOURCE.column_names} - {"y"}
    return raw, preparation, {part.name: rows.column(part.name).to_numpy() for part in preparation.column_inputs}


def _assert_same(feed: Feed, expected: Feed, way: str) -> None:
    for name, values in expected.items():
        if values.dtype == object:
            assert feed[name].tolist() == [value or "" for value in values], f"{name} by {way}"
        else:
            np.testing.assert_array_equal(feed[name], values, f"{name} by {way}")


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_a_model_gets_the_values_of_its_training_by_each_way(suffix: str, tmp_path: Path) -> None:
    raw, preparation, expected = _trained(tmp_path / f"a{suffix}")
    schema = input_schema(preparation)
    for name, way in WAYS.items():
        _assert_same(way(SOURCE, schema), expected, name)
    reading = ReadOptions(SPEC.data, preparation, tmp_path, csv_types(preparation.column_inputs, raw.schema))
    for name, write in FILES.items():
        path = tmp_path / f"rows{name}"
        write(SOURCE, path)
        ((_, feed),) = examples(reading, [path], path.name)
        _assert_same(feed, expected, name)
