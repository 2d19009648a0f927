"""The same rows give the same predictions, or are refused, whichever way they come to a model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.types import DataType
from mlflow.types.schema import Array

from models.data.target_encoding import OutputColumn, TargetEncoding
from models.errors import DataError
from models.inference.row_values import moments
from models.inputs.times import as_seconds
from models.inputs.types import as_text
from models.serving.open_api import prediction_schema
from models.serving.open_inference import InferenceRequest, written
from tasks.mlflow.onnx_model import model_signature
from tests.ways_in import (
    CATEGORIES,
    CELLS,
    NOON_S,
    NUMBERS,
    PREPARATION,
    REFUSED,
    TEXTS,
    TIMES,
    TYPED,
    Columns,
    Way,
    Ways,
    answers,
    assert_same,
    frame,
)
from tests.wide import wide


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
    assert_same(ways, TYPED, columns)


@given(
    st.fixed_dictionaries(
        {name: st.lists(CELL, min_size=2, max_size=2) for name in (*NUMBERS, *TIMES, *CATEGORIES, *TEXTS)}
    )
)
def test_cells_mean_the_same_in_every_way_in(ways: Ways, columns: Columns) -> None:
    assert_same(ways, CELLS, columns)


@pytest.mark.parametrize("name", ["x", wide("n"), "when", "word", wide("month"), wide("late"), "note"])
@given(st.data())
def test_a_cell_means_the_same_in_every_way_in(ways: Ways, name: str, data: st.DataObject) -> None:
    columns: Columns = {other: ["1"] for other in (*NUMBERS, *TIMES, *CATEGORIES, *TEXTS)}
    assert_same(ways, CELLS, {**columns, name: [data.draw(CELL)]})


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
    typed, written = answers(ways, Ways.records, columns), answers(ways, Ways.server_csv, cells)
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
    records = answers(ways, Ways.records, {**columns, "when": expected})
    assert assert_same(dated, TYPED, columns) == records
    assert (assert_same(dated, CELLS, cells) == REFUSED) == (records == REFUSED)


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
    expected = answers(ways, Ways.records, {**columns, "x": [COMMAS[text] for text in texts]})
    assert assert_same(with_commas, TYPED, columns) == expected
    assert (assert_same(with_commas, CELLS, cells) == REFUSED) == (expected == REFUSED)


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
        [{"name": "x", "dtype": "double", "shape": ["batch"]}], several.pyfunc.predict(frame(columns))
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
