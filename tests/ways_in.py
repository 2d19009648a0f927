"""A small model whose every column decides, and each way in which rows come to it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import orjson
import pandas as pd
import pyarrow as pa
import pytest

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import DataError
from models.export.bundle import bundle
from models.export.graph import assemble
from models.inference.batch import ReadOptions, csv_types, examples
from models.inference.loaded_model import LoadedModel
from models.inference.portable import _load_pyfunc
from models.inputs.categorical.record import CategoricalInput
from models.inputs.datetime.record import DatetimeInput
from models.inputs.graph_builder import GraphBuilder
from models.inputs.numeric.record import NumericInput
from models.inputs.text.record import TextColumn
from models.ngrams.model import NgramModel
from models.project_spec.blocks import Data
from models.serving.mlflow_scoring import scoring_of_csv, scoring_of_json
from models.serving.open_inference import inference_of

Columns = dict[str, list[Any]]
Records = list[dict[str, Any]]
Way = Callable[["Ways", Columns], Records]
REFUSED = "refused"
NUMBERS, TIMES, CATEGORIES, TEXTS = ("x", "n"), ("when",), ("word", "month", "late"), ("note",)
NOON_S = 1_717_243_200.0
PREPARATION = Preparation(
    kind="table",
    task="binary",
    target=TargetEncoding(name="y", classes=["no", "yes"], dtype="string"),
    inputs=[
        NumericInput(name="x", fill=0.3, scale=1e28),
        NumericInput(name="n", fill=0.7, scale=1e28),
        CategoricalInput(name="word", categories=["3", "NA", "TRUE", "a", "true"]),
        CategoricalInput(
            name="month", categories=["-3", "1", "1.5", "1e-05", "3", "9007199254740993"], dtype="integer"
        ),
        CategoricalInput(name="late", categories=["false", "true"], dtype="boolean"),
        TextColumn(name="note", num_terms=2, num_features=2),
        DatetimeInput(name="when", cycles=["day"], trend=True, low=0, high=2e9, shift=1e9, scale=1e9),
    ],
    ngrams={
        "note": NgramModel(
            alphabet={" ": " ", "!": " ", "a": "a", "A": "a", "ü": "ü"},
            terms=[" a ", "aü"],
            num_words=1,
            idf=np.array([1.0, 2.0]),
            projection=np.array([[0.3], [-0.2]], np.float32),
            bias=np.array([0.1]),
            length=np.array([1.0, 2.0]),
            low=np.array([-0.5, -0.5]),
            high=np.array([0.3, 1.0]),
        )
    },
)


class Ways:
    """A small model whose every column decides, and each way to have it predict."""

    def __init__(self, folder: Path, preparation: Preparation = PREPARATION) -> None:
        self.folder, self.preparation = folder, preparation
        net = GraphBuilder("net/")
        as_floats = net.node("Cast", ["core/categorical"], "floats", to=onnx.TensorProto.FLOAT)
        both = net.node("Concat", ["core/numeric", as_floats], "both", axis=1)
        factors = np.array([[0.02], [0.03], [0.5], [0.3], [0.7], [0.8], [0.9], [0.1], [0.2], [0.4]], np.float32)
        factors = factors * np.arange(1, preparation.num_outputs + 1, dtype=np.float32)
        raw = net.node("MatMul", [both, net.constant("factors", factors)], "raw")
        onnx.save(assemble(preparation, net, raw, {}), folder / "model.onnx")
        preparation.save(folder)
        self.served = LoadedModel("tiny", "1", folder)
        self.pyfunc = _load_pyfunc(str(folder))
        for name, text in bundle(self.served, {}).items():
            (folder / name).write_text(text, encoding="utf-8")

    def records(self, columns: Columns) -> Records:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return self._sent({"dataframe_records": rows})

    def columns(self, columns: Columns) -> Records:
        return self._sent({"inputs": columns})

    def split(self, columns: Columns) -> Records:
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        return self._sent({"dataframe_split": {"columns": list(columns), "data": rows}})

    def open_inference(self, columns: Columns) -> Records:
        tensors = [_tensor(name, values) for name, values in columns.items()]
        inference = inference_of(orjson.dumps({"inputs": tensors}))
        return self.served.records(self.served.answer(self.served.schema.from_tensors(inference.tensors).feed))

    def arrow(self, columns: Columns) -> Records:
        kinds = {name: pa.uint64() if _is_unsigned(values) else None for name, values in columns.items()}
        return self._batch(pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()}))

    def frame(self, columns: Columns) -> Records:
        return self.pyfunc.predict(frame(columns)).to_dict("records")  # type: ignore[no-any-return]

    def edge_json(self, columns: Columns) -> Records:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return self._script("rows.json", json.dumps(rows))

    def server_csv(self, columns: Columns) -> Records:
        rows = scoring_of_csv(_csv(columns).encode()).rows(self.served.schema)
        return self.served.records(self.served.answer(rows.feed))

    def batch_csv(self, columns: Columns) -> Records:
        (self.folder / "rows.csv").write_text(_csv(columns), encoding="utf-8")
        data = Data(source="rows.csv", target="y")
        reading = ReadOptions(data, self.preparation, self.folder, csv_types(self.preparation.column_inputs, None))
        ((_, feed),) = examples(reading, [self.folder / "rows.csv"], "rows.csv")
        return self.served.records(self.served.answer(feed))

    def edge_csv(self, columns: Columns) -> Records:
        return self._script("rows.csv", _csv(columns))

    def _sent(self, document: dict[str, Any]) -> Records:
        rows = scoring_of_json(json.dumps(document).encode()).rows(self.served.schema)
        return self.served.records(self.served.answer(rows.feed))

    def _batch(self, rows: pa.Table) -> Records:
        return self.served.records(self.served.answer(self.served.schema.from_arrow(rows)))

    def _script(self, name: str, text: str) -> Records:
        (self.folder / name).write_text(text, encoding="utf-8")
        printed, arguments = io.StringIO(), ["predict.py", str(self.folder / name)]
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
            patch.setattr(sys, "argv", arguments)
            patch.syspath_prepend(str(self.folder))
            runpy.run_path(str(self.folder / "predict.py"), run_name="__main__")
        return [json.loads(line) for line in printed.getvalue().splitlines()]


TYPED: list[Way] = [Ways.records, Ways.columns, Ways.split, Ways.open_inference, Ways.arrow, Ways.frame, Ways.edge_json]
CELLS: list[Way] = [Ways.server_csv, Ways.batch_csv, Ways.edge_csv]


def _is_unsigned(values: list[Any]) -> bool:
    return any(type(value) is int and value >= 2**63 for value in values)


def _pandas_type(values: list[Any]) -> str | None:
    kinds = {type(value) for value in values}
    if _is_unsigned(values):
        return "UInt64"
    return "Int64" if kinds == {int, type(None)} else "boolean" if kinds == {bool, type(None)} else None


def _tensor(name: str, values: list[Any]) -> dict[str, Any]:
    kinds = {type(value) for value in values} - {type(None)}
    dtype = "FP64"
    if name in (*TIMES, *NUMBERS) and (kinds == {str} or (name in TIMES and None in values)):
        return {"name": name, "datatype": "BYTES", "shape": [len(values)], "data": [_text(value) for value in values]}
    if name in TEXTS and kinds <= {str}:
        return {"name": name, "datatype": "BYTES", "shape": [len(values)], "data": values}
    if name in CATEGORIES and kinds != {float} and (None in values or kinds == {str}):
        dtype, values = "BYTES", [_text(value) for value in values]
    elif None not in values:
        dtype = "INT64" if kinds == {int} else "BOOL" if kinds == {bool} else "FP64"
        dtype = "UINT64" if _is_unsigned(values) else dtype
    return {"name": name, "datatype": dtype, "shape": [len(values)], "data": values}


def _text(value: Any) -> str | None:
    """Return a value as a caller who has a type for texts alone writes it."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _csv(columns: Columns) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines)
    writer.writerows([list(columns), *zip(*columns.values(), strict=True)])
    return lines.getvalue()


def answers(ways: Ways, way: Way, columns: Columns) -> Records | str:
    try:
        return way(ways, columns)
    except (DataError, ValueError, SystemExit):
        return REFUSED


def assert_same(ways: Ways, all_ways: list[Way], columns: Columns) -> Records | str:
    first = answers(ways, all_ways[0], columns)
    for way in all_ways[1:]:
        other = answers(ways, way, columns)
        where = f"{way.__name__} differs from {all_ways[0].__name__}"
        if isinstance(first, str) or isinstance(other, str):
            assert other == first, where
            continue
        for one, two in zip(first, other, strict=True):
            assert one["label"] == two["label"], where
            assert two["probability_yes"] == pytest.approx(one["probability_yes"], rel=1e-6), where
    return first


def frame(columns: Columns) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(values, dtype=_pandas_type(values)) for name, values in columns.items()})
