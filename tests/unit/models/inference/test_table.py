"""Rows of a table, from records, columns and tensors."""

import contextlib
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import DataError
from models.inference import table
from models.inference.input_schema import InputRows
from models.inference.table import TableSchema
from models.inputs.categorical.record import CategoricalInput
from models.inputs.numeric.record import NumericInput
from tests.served_models import preparation_of

SCHEMA = TableSchema(preparation_of("binary"))
KINDS = Preparation(
    kind="table",
    task="regression",
    target=TargetEncoding(name="y"),
    inputs=[
        NumericInput(name="x", fill=0.0),
        CategoricalInput(name="whole", categories=["1", "2"], dtype="integer"),
        CategoricalInput(name="flag", categories=["true", "false"], dtype="boolean"),
    ],
)
NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False))
TEXTS = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.text())


def same(one: InputRows, other: InputRows) -> None:
    assert list(one.feed) == list(other.feed)
    for name, values in one.feed.items():
        np.testing.assert_array_equal(values, other.feed[name])
        assert values.flags.c_contiguous


@given(st.lists(st.fixed_dictionaries({"x": NUMBERS.filter(lambda x: abs(x or 0) <= 1e30), "c": TEXTS}), min_size=1))
def test_records_and_columns_mean_the_same(records: list[dict[str, object]]) -> None:
    columns = {name: [record[name] for record in records] for name in ("x", "c")}
    same(SCHEMA.from_records(records), SCHEMA.from_columns(columns))


@pytest.mark.parametrize("count", [5, 6, 13])
def test_many_rows_are_read_in_pieces_as_in_one(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [{"x": None if at == 3 else at / 7, "c": f"c{at}", "note": at} for at in range(count)]
    whole = SCHEMA.from_records(records)
    monkeypatch.setattr(table, "PIECE_ITEMS", 5)
    pieces = SCHEMA.from_records(records)
    same(pieces, whole)
    np.testing.assert_array_equal(pieces.numbers, whole.numbers)
    assert pieces.extra == whole.extra == {"note": list(range(count))}
    records[-1]["x"] = "far"
    with pytest.raises(DataError, match=f"row {count}, column 'x': got 'far', expected a number"):
        SCHEMA.from_records(records)


@pytest.mark.parametrize(
    "record", [{"x0": 1.0}, {"x": 1.0}, {"x": "far", "c": "a"}, {"x": 1e40, "c": "a"}, {"x": 1.0, "c": [1]}, "a"]
)
def test_a_refused_record_leaves_nothing_in_memory(record: object) -> None:
    """A server refuses for months; of an argument `*iterator` that raised, CPython kept 190 bytes each time."""

    def refused(count: int) -> int:
        for _ in range(count):
            with contextlib.suppress(DataError):
                SCHEMA.from_records([record])
        return tracemalloc.get_traced_memory()[0]

    with pytest.raises(DataError):
        SCHEMA.from_records([record])
    tracemalloc.start()
    try:
        before = refused(100)
        assert refused(1000) - before < 20_000
    finally:
        tracemalloc.stop()


def test_missing_values_are_nan_and_empty() -> None:
    feed = SCHEMA.from_records([{"x": None, "c": None}, {"x": True, "c": False}]).feed
    np.testing.assert_array_equal(feed["x"], [np.nan, 1.0])
    assert feed["c"].tolist() == ["", "false"]
    assert feed["x"].dtype == np.float64
    assert feed["c"].dtype == object


def test_columns_that_are_no_input_are_kept_but_for_the_target() -> None:
    record = {"x": 1, "c": "u", "y": "yes", "note": [1]}
    assert SCHEMA.from_records([record]).extra == {"note": [[1]]}
    assert SCHEMA.from_columns({name: [value] for name, value in record.items()}).extra == {"note": [[1]]}


def test_a_record_means_the_same_alone_and_among_others() -> None:
    for records in ([{"x": 1}], [{"x": 1, "c": "u"}, {"x": 1}]):
        with pytest.raises(DataError, match=f"row {len(records)}: the model takes 'c': got 'x': give null"):
            SCHEMA.from_records(records)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"x": "1", "c": "u"}, "row 1, column 'x': got '1', expected a number"),
        ({"x": [1], "c": "u"}, "row 1, column 'x': got a list of 1"),
        ({"x": 1, "c": 1.5}, "row 1, column 'c': got 1.5, expected text"),
        ({"x": 1, "c": {}}, "row 1, column 'c': got an object"),
    ],
)
def test_a_value_that_does_not_do_is_told_with_its_place(record: dict[str, object], said: str) -> None:
    with pytest.raises(DataError, match=said):
        SCHEMA.from_records([record])


def test_an_infinite_number_is_refused() -> None:
    with pytest.raises(DataError, match="row 2, column 'x': got inf, expected a number between"):
        SCHEMA.from_columns({"x": [0.0, float("inf")], "c": ["u", "u"]})


@pytest.mark.parametrize("missing", [None, 0.0])
def test_a_number_that_float32_cannot_hold_is_refused_beside_any_other(missing: float | None) -> None:
    records = [{"x": missing, "c": "u"}, {"x": 1e39, "c": "u"}]
    with pytest.raises(DataError, match="row 2, column 'x': got 1e\\+39, expected a number between"):
        SCHEMA.from_records(records)
    assert SCHEMA.from_records([{"x": missing, "c": "u"}, {"x": -9e29, "c": "u"}]).feed["x"][1] == -9e29


def test_categories_that_were_numbers_or_flags_are_known_as_text_too() -> None:
    feed = (
        TableSchema(KINDS)
        .from_columns({"x": [0] * 4, "whole": [1, 2.0, "1.0", "1.5"], "flag": [True, "True", "FALSE", None]})
        .feed
    )
    assert feed["whole"].tolist() == ["1", "2", "1", "1.5"]
    assert feed["flag"].tolist() == ["true", "true", "false", ""]


def test_a_table_without_names_is_refused() -> None:
    with pytest.raises(DataError, match="columns by name"):
        SCHEMA.from_array([[1, "u"]])


def test_tensors_are_columns_with_or_without_a_second_axis() -> None:
    columns = SCHEMA.from_columns({"x": [1, None], "c": ["u", "v"]})
    texts = np.array(["u", "v"], object)
    same(SCHEMA.from_tensors({"c": texts, "x": np.array([1, np.nan], np.float32)}), columns)
    same(SCHEMA.from_tensors({"x": np.array([[1], [np.nan]]), "c": texts[:, None]}), columns)
    assert SCHEMA.from_tensors({"x": np.array([1]), "c": np.array([7])}).feed["c"].tolist() == ["7"]


def test_null_in_a_tensor_of_texts_is_a_missing_value_as_in_a_record() -> None:
    record = SCHEMA.from_records([{"x": True, "c": None}])
    same(SCHEMA.from_tensors({"x": np.array([True]), "c": np.array([None], object)}), record)


def test_no_input_is_taken_for_another_that_is_misspelt() -> None:
    parts = [NumericInput(name=name, fill=0.0) for name in ("bill_length_mm", "bill_depth_mm")]
    target = TargetEncoding(name="y")
    schema = TableSchema(Preparation(kind="table", task="regression", target=target, inputs=[*parts]))
    with pytest.raises(DataError, match="takes 'bill_length_mm': got 'bill_depth_mm'"):
        schema.from_records([{"bill_depth_mm": 1}])
    with pytest.raises(DataError, match="takes 'bill_length_mm': did you mean it by 'bill_length'"):
        schema.from_columns({"bill_depth_mm": [1], "bill_length": [2]})


@pytest.mark.parametrize(
    ("x", "c", "said"),
    [
        (np.zeros(2), np.array(["u"], object), r"inputs have \[1, 2\] rows"),
        (np.zeros((1, 2)), np.array(["u"], object), r"got shape \[1, 2\], expected \[rows\]"),
        (np.array(["1"], object), np.array(["u"], object), "'x': got BYTES"),
        (np.zeros(1), np.full(1, 0.5), "row 1, column 'c': got 0.5, expected text"),
        (np.array([np.inf]), np.array(["u"], object), "got inf, expected a number"),
        (np.zeros(0), np.zeros(0, object), "no rows"),
    ],
)
def test_tensors_that_do_not_do_are_refused(x: np.ndarray, c: np.ndarray, said: str) -> None:
    with pytest.raises(DataError, match=said):
        SCHEMA.from_tensors({"x": x, "c": c})
    with pytest.raises(DataError, match="takes no 'more'"):
        SCHEMA.from_tensors({"x": x, "c": c, "more": x})


def test_the_schema_of_a_record_names_each_column() -> None:
    schema = SCHEMA.record_schema()
    assert schema["required"] == ["x", "c"]
    assert schema["properties"]["c"]["type"] == ["string", "integer", "boolean", "null"]


def test_fractions_are_categories_where_numbers_were() -> None:
    part = CategoricalInput(name="engine", categories=["1.2", "1.6", "2"], dtype="integer")
    schema = TableSchema(Preparation(kind="table", task="regression", target=TargetEncoding(name="y"), inputs=[part]))
    answers = [schema.from_records([{"engine": value}]).feed["engine"][0] for value in (1.6, "1.6", 2.0, 2)]
    assert answers == ["1.6", "1.6", "2", "2"]
