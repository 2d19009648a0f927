"""The same rows give the same predictions, or are refused, whichever way they come to a model."""

from __future__ import annotations

import contextlib
import csv
import functools
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
from hypothesis import given
from hypothesis import strategies as st
from mlflow.types import DataType
from mlflow.types.schema import Array

from models.data.preparation import Preparation
from models.data.target_encoding import OutputColumn, TargetEncoding
from models.errors import DataError
from models.export.bundle import bundle
from models.export.graph import assemble
from models.inference.batch import ReadOptions, csv_types, examples
from models.inference.loaded_model import LoadedModel
from models.inference.portable import _load_pyfunc
from models.inference.row_values import moments
from models.inputs.categorical.record import CategoricalInput
from models.inputs.datetime.record import DatetimeInput
from models.inputs.graph_builder import GraphBuilder
from models.inputs.numeric.record import NumericInput
from models.inputs.text.record import TextColumn
from models.inputs.times import as_seconds
from models.inputs.types import as_text
from models.ngrams.model import NgramModel
from models.project_spec.blocks import Data
from models.serving.mlflow_scoring import scoring_of_csv, scoring_of_json
from models.serving.open_api import prediction_schema
from models.serving.open_inference import InferenceRequest, inference_of, written
from tasks.mlflow.onnx_model import model_signature
from tests.wide import wide

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
        return self.pyfunc.predict(_frame(columns)).to_dict("records")  # type: ignore[no-any-return]

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


def _answers(ways: Ways, way: Way, columns: Columns) -> Records | str:
    try:
        return way(ways, columns)
    except (DataError, ValueError, SystemExit):
        return REFUSED


def _assert_same(ways: Ways, all_ways: list[Way], columns: Columns) -> Records | str:
    first = _answers(ways, all_ways[0], columns)
    for way in all_ways[1:]:
        other = _answers(ways, way, columns)
        where = f"{way.__name__} differs from {all_ways[0].__name__}"
        if isinstance(first, str) or isinstance(other, str):
            assert other == first, where
            continue
        for one, two in zip(first, other, strict=True):
            assert one["label"] == two["label"], where
            assert two["probability_yes"] == pytest.approx(one["probability_yes"], rel=1e-6), where
    return first


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Ways:
    return Ways(tmp_path_factory.mktemp("ways"))


WHOLE = st.sampled_from([0, 1, 3, -3, 12, 2**53 + 1, -(2**63), 2**63 - 1])
UNSIGNED = st.sampled_from([2**53 + 1, 2**63, 2**64 - 1])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, 3.0, -3.0, 1.5, 1e-5, 2.0**60, 1e20, 9e29])
TOO_LARGE = st.sampled_from([1.1e30, -1e39])
WORDS = st.sampled_from(
    [
        "",
        "a",
        "3",
        "3.0",
        " 3",
        "+3",
        "1.50",
        "1e-5",
        "0.00001",
        "TRUE",
        "False",
        " true ",
        "1",
        "0",
        "1.0",
        "NA",
        "nan",
    ]
)
SECONDS = st.sampled_from([0, NOON_S, 0.5, -1.0, 253_402_300_799])
TOO_LATE = st.sampled_from([1_717_243_200_000, 9e29])
INSTANTS = st.sampled_from(
    [
        "",
        "2024-06-01",
        "2024-06-01T12:00:00Z",
        "2024-06-01 14:00:00+02:00",
        "2024-06-01T12:00",
        " 2024-06-01T12:00:00.000000",
        "1717243200",
        "1.7172432e9",
        "1969-12-31T23:59:59",
        "0001-01-01",
        "9999-12-31T23:59:59",
    ]
)
NO_INSTANTS = st.sampled_from(["2024-13-01", "yesterday", "12:00", "2024-06-01T25:00", "nan", "inf", "1717243200000"])
NOTES = st.sampled_from(["", "a", "a aü", "A!  aü\n", "aüa" * 2000 + " a", "\u4e2d a \U0001f600", "  "])
CELL = (
    NOTES
    | INSTANTS
    | NO_INSTANTS
    | WORDS
    | st.just("18446744073709551616")
    | st.sampled_from(
        ["1_0", "inf", "-Infinity", "9007199254740993", "1e31", "null", "٣", "x y", "3e0", "0x10", ".5", "1.", "-nan"]
    )
)


def _column(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Return columns of three cells of one type, some of them missing."""
    return st.one_of([st.lists(kind | st.none(), min_size=3, max_size=3) for kind in kinds])


@given(
    st.fixed_dictionaries(
        {name: _column(st.booleans(), WHOLE, FLOATS, FLOATS | TOO_LARGE) for name in NUMBERS}
        | {name: _column(st.booleans(), WHOLE, UNSIGNED, FLOATS, WORDS) for name in CATEGORIES}
        | {"when": _column(st.booleans(), SECONDS, SECONDS | TOO_LATE, INSTANTS, INSTANTS | NO_INSTANTS)}
        | {"note": _column(NOTES, NOTES, WHOLE)}
    )
)
def test_values_mean_the_same_in_every_way_in(ways: Ways, columns: Columns) -> None:
    _assert_same(ways, TYPED, columns)


@given(
    st.fixed_dictionaries(
        {name: st.lists(CELL, min_size=2, max_size=2) for name in (*NUMBERS, *TIMES, *CATEGORIES, *TEXTS)}
    )
)
def test_cells_mean_the_same_in_every_way_in(ways: Ways, columns: Columns) -> None:
    _assert_same(ways, CELLS, columns)


@pytest.mark.parametrize("name", ["x", wide("n"), "when", "word", wide("month"), wide("late"), "note"])
@given(st.data())
def test_a_cell_means_the_same_in_every_way_in(ways: Ways, name: str, data: st.DataObject) -> None:
    columns: Columns = {other: ["1"] for other in (*NUMBERS, *TIMES, *CATEGORIES, *TEXTS)}
    _assert_same(ways, CELLS, {**columns, name: [data.draw(CELL)]})


@given(
    st.fixed_dictionaries(
        {name: st.lists(st.booleans() | WHOLE | FLOATS | st.none(), min_size=2, max_size=2) for name in NUMBERS}
        | {"word": st.lists(st.just("a") | st.none(), min_size=2, max_size=2)}
        | {"month": st.lists(WHOLE | FLOATS | st.none(), min_size=2, max_size=2)}
        | {"late": st.lists(st.booleans() | st.none(), min_size=2, max_size=2)}
        | {"when": st.lists(SECONDS | INSTANTS | st.none(), min_size=2, max_size=2)}
        | {"note": st.lists(NOTES | st.none(), min_size=2, max_size=2)}
    )
)
def test_a_value_means_the_same_as_its_cell(ways: Ways, columns: Columns) -> None:
    cells = {name: ["" if value is None else str(value) for value in values] for name, values in columns.items()}
    typed, written = _answers(ways, Ways.records, columns), _answers(ways, Ways.server_csv, cells)
    assert REFUSED not in (typed, written)
    assert [one["probability_yes"] for one in typed] == [one["probability_yes"] for one in written]  # type: ignore[index]


@pytest.mark.parametrize("way", [*TYPED, *CELLS])
def test_a_row_that_lacks_a_column_is_refused(ways: Ways, way: Way) -> None:
    columns: Columns = {"x": [1.0], "n": [2.0], "when": [0], "word": ["a"], "month": [3], "note": [""]}
    with pytest.raises((DataError, ValueError, KeyError, SystemExit)):
        way(ways, columns)


@given(_column(st.booleans(), WHOLE, FLOATS, st.sampled_from(["", "a", "3", "true"])))
def test_a_category_is_the_text_of_the_training_data(ways: Ways, values: list[Any]) -> None:
    column = pa.chunked_array([pa.array(values)])
    texts = [text or "" for text in as_text(column).to_pylist()]
    name = "late" if pa.types.is_boolean(column.type) else "word" if pa.types.is_string(column.type) else "month"
    rows = {other: [None] * 3 for other in (*NUMBERS, *TIMES, *CATEGORIES, *TEXTS)} | {name: values}
    assert ways.served.schema.from_columns(rows).feed[name].tolist() == texts


@given(_column(SECONDS, INSTANTS.filter(lambda text: text[-6:] != "+02:00" and not text.endswith("Z"))))
def test_a_time_is_the_seconds_of_the_training_data(values: list[Any]) -> None:
    column = pa.chunked_array([pa.array(values)])
    if pa.types.is_string(column.type):
        seconds = np.concatenate([as_seconds(column.slice(at, 1), "when") for at in range(len(values))])
    else:
        seconds = as_seconds(column, "when")
    np.testing.assert_array_equal(moments(values, "when"), seconds)


@pytest.fixture(scope="module")
def dated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ways]:
    """Return the ways of a model whose column `when` has a form of its own."""

    @functools.cache
    def of(form: str) -> Ways:
        return Ways(tmp_path_factory.mktemp("dated"), PREPARATION.model_copy(update={"dates": {"when": form}}))

    return of


WRITTEN = ["", "01.06.2024 12:00", " 1.6.2024 14:00", "2024-06-01T12:00:00Z", "31.02.2024 12:00", "1717243200", "soon"]
OTHERS: Columns = {"x": [0.5] * 2, "n": [1.0] * 2, "word": ["a"] * 2, "month": [3] * 2, "late": [True] * 2}


@given(st.lists(st.sampled_from(WRITTEN), min_size=2, max_size=2))
def test_a_date_in_its_own_form_is_the_time_in_every_way_in(
    ways: Ways, dated: Callable[[str], Ways], texts: list[str]
) -> None:
    iso = {WRITTEN[1]: "2024-06-01T12:00", WRITTEN[2]: "2024-06-01T14:00", "1717243200": "no seconds here"}
    expected = [iso.get(text, text) for text in texts]
    _assert_is_time(ways, dated("%d.%m.%Y %H:%M"), {**OTHERS, "note": ["a"] * 2, "when": texts}, expected)


@pytest.mark.parametrize("kind", [int, float])
@given(st.lists(st.sampled_from([None, 20240601, 20240229, 20240230, 1717243200]), min_size=2, max_size=2))
def test_a_date_as_a_whole_number_is_the_time_in_every_way_in(
    ways: Ways, dated: Callable[[str], Ways], kind: type, numbers: list[int | None]
) -> None:
    iso = {None: None, 20240601: "2024-06-01", 20240229: "2024-02-29"}
    expected = [iso.get(number, "none") for number in numbers]
    values = [number if number is None else kind(number) for number in numbers]
    _assert_is_time(ways, dated("%Y%m%d"), {**OTHERS, "note": ["a"] * 2, "when": values}, expected)


def _assert_is_time(ways: Ways, dated: Ways, columns: Columns, expected: list[Any]) -> None:
    cells = {name: ["" if value is None else str(value) for value in values] for name, values in columns.items()}
    records = _answers(ways, Ways.records, {**columns, "when": expected})
    assert _assert_same(dated, TYPED, columns) == records
    assert (_assert_same(dated, CELLS, cells) == REFUSED) == (records == REFUSED)


@pytest.fixture(scope="module")
def with_commas(tmp_path_factory: pytest.TempPathFactory) -> Ways:
    return Ways(tmp_path_factory.mktemp("commas"), PREPARATION.model_copy(update={"decimal_commas": ["x"]}))


COMMAS: dict[str, Any] = {
    "": None,
    "2,5": 2.5,
    " 1.234,5": 1234.5,
    "-0,25": -0.25,
    "1.234": 1234.0,
    "3": 3,
    "1.5": "no",
}


@given(st.lists(st.sampled_from([*COMMAS]), min_size=2, max_size=2))
def test_a_number_with_a_decimal_comma_is_the_number_in_every_way_in(
    ways: Ways, with_commas: Ways, texts: list[str]
) -> None:
    others: Columns = {"n": [1.0] * 2, "word": ["a"] * 2, "month": [3] * 2, "late": [True] * 2, "note": ["a"] * 2}
    columns: Columns = {"x": texts, **others, "when": ["2024-06-01T12:00"] * 2}
    cells = {name: [str(value) for value in values] for name, values in columns.items()}
    expected = _answers(ways, Ways.records, {**columns, "x": [COMMAS[text] for text in texts]})
    assert _assert_same(with_commas, TYPED, columns) == expected
    assert (_assert_same(with_commas, CELLS, cells) == REFUSED) == (expected == REFUSED)


SEVERAL = {
    "regression": [OutputColumn(name="a", column="a", shift=3.0), OutputColumn(name="b b", column="b b", scale=100.0)],
    "quantile": [OutputColumn(name=f"q{1 - level:g}", column="y", quantile=1 - level) for level in (0.9, 0.5, 0.1)],
    "multilabel": [OutputColumn(name=name, column=name) for name in ("hot", "wet")],
}
NAMES = {
    "regression": ["prediction_a", "prediction_b b"],
    "quantile": ["prediction_q0.1", "prediction_q0.5", "prediction_q0.9"],
    "multilabel": ["labels", "probability_hot", "probability_wet"],
}


@pytest.mark.parametrize("task", list(SEVERAL))
def test_several_outputs_are_the_same_in_every_way_in(task: Any, tmp_path: Path) -> None:
    target = TargetEncoding(name=task, outputs=SEVERAL[task])
    several = Ways(tmp_path, PREPARATION.model_copy(update={"task": task, "target": target}))
    columns: Columns = {"x": [-9e29, 2e28], "n": [3.0, None], "when": [0.0, NOON_S], "word": ["a", "3"]}
    columns |= {"month": [3, 1], "late": [True, False], "note": [None, "a aü"]}
    expected = Ways.records(several, columns)
    assert [list(row) for row in expected] == [NAMES[task]] * 2
    cells = {name: ["" if value is None else str(value) for value in values] for name, values in columns.items()}
    for way in [*TYPED, *CELLS]:
        for one, row in zip(expected, way(several, columns if way in TYPED else cells), strict=True):
            assert list(row) == NAMES[task], way.__name__
            assert row.get("labels") == one.get("labels"), way.__name__
            numbers = [name for name in NAMES[task] if name != "labels"]
            assert [row[name] for name in numbers] == pytest.approx([one[name] for name in numbers], rel=1e-6)
    schema = prediction_schema(several.served)
    assert list(schema["properties"]) == NAMES[task]
    signature = model_signature(
        [{"name": "x", "dtype": "double", "shape": ["batch"]}], several.pyfunc.predict(_frame(columns))
    )
    assert signature.outputs.input_names() == NAMES[task]
    if task == "quantile":
        assert all(list(row.values()) == sorted(row.values()) for row in expected)
    if task == "multilabel":
        assert [row["labels"] for row in expected] == [[], ["hot", "wet"]]
        assert signature.outputs.input_types()[0] == Array(DataType.string)
    outputs = several.served.answer(several.served.schema.from_columns(columns).feed).outputs
    written_ = orjson.loads(written(InferenceRequest({}), outputs, several.served.outputs, "tiny", "1", "id").body)
    assert [tensor["shape"] for tensor in written_["outputs"]] == [[2, len(SEVERAL[task])]] * len(outputs)


def _frame(columns: Columns) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(values, dtype=_pandas_type(values)) for name, values in columns.items()})
