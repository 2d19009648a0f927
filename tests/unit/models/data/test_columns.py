import numpy as np
import pyarrow as pa
import pytest

from models.data.columns import as_float64, as_text, choose, dtype_of, with_slices
from models.errors import DataError

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float32()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.dictionary(pa.int8(), pa.string())),
        ("when", pa.timestamp("s")),
        ("l", pa.list_(pa.int8())),
        ("y", pa.int64()),
    ]
)


def test_numbers_are_numeric_text_and_flags_categorical_dates_datetimes_and_the_rest_is_left_out(make_spec):
    chosen = choose(SCHEMA, make_spec().data)
    assert chosen.numeric == ["i", "f"]
    assert chosen.categorical == ["s", "b", "d"]
    assert chosen.datetime == ["when"]
    assert set(chosen.left_out) == {"l"}


def test_the_spec_chooses_columns_and_kinds(make_spec):
    chosen = choose(SCHEMA, make_spec(features={"columns": ["i", "s"], "kinds": {"i": "categorical"}}).data)
    assert (chosen.numeric, chosen.categorical) == ([], ["i", "s"])
    assert chosen.left_out["f"] == "not in data.features.columns"


def test_columns_stand_in_the_order_of_the_spec(make_spec):
    chosen = choose(SCHEMA, make_spec(features={"columns": ["f", "i", "b", "s"]}).data)
    assert (chosen.numeric, chosen.categorical) == (["f", "i"], ["b", "s"])
    chosen = choose(SCHEMA, make_spec(features={"columns": ["s", "i", "b", "f"]}).data)
    assert (chosen.numeric, chosen.categorical) == (["i", "f"], ["s", "b"])


def test_the_split_column_is_an_input_only_when_asked_for(make_spec):
    split = {"by": "hash", "column": "i"}
    assert "i" in choose(SCHEMA, make_spec(split=split).data).left_out
    assert "i" in choose(SCHEMA, make_spec(split=split, features={"columns": ["i"]}).data).numeric


@pytest.mark.parametrize(
    ("kinds", "message"),
    [({"when": "numeric"}, "'when' is named, but.*when: datetime"), ({"b": "datetime"}, "'b' is named, but.*no time")],
)
def test_a_kind_that_the_type_cannot_have_is_refused_with_the_cure(make_spec, kinds, message):
    with pytest.raises(DataError, match=message):
        choose(SCHEMA, make_spec(features={"kinds": kinds}).data)


def test_a_column_of_nothing_is_refused_unless_it_is_dropped(make_spec):
    schema = SCHEMA.append(pa.field("empty", pa.null()))
    with pytest.raises(DataError, match=r"'empty' has no value at all.*data\.features\.drop"):
        choose(schema, make_spec().data)
    assert "empty" in choose(schema, make_spec(features={"drop": ["empty"]}).data).left_out


def test_a_series_takes_numbers_and_its_own_past(series_spec):
    schema = pa.schema([("t", pa.int64()), ("y", pa.float64()), ("flag", pa.bool_()), ("name", pa.string())])
    chosen = choose(schema, series_spec().data)
    assert chosen.numeric == ["y", "flag"]
    assert "encode it" in chosen.left_out["name"]


def test_categories_are_text_and_whole_numbers_lose_their_fraction():
    assert as_text(pa.chunked_array([[1.0, 2.5, None, float("nan")]])).to_pylist() == ["1", "2.5", None, None]
    assert as_text(pa.chunked_array([[7, None]])).to_pylist() == ["7", None]
    assert as_text(pa.chunked_array([[True, False, None]])).to_pylist() == ["true", "false", None]
    assert as_text(pa.chunked_array([["a", "", None]])).to_pylist() == ["a", None, None]
    assert as_text(pa.chunked_array([["a", "a"]]).dictionary_encode()).to_pylist() == ["a", "a"]


def test_numbers_are_float64_with_nan_for_missing():
    values = as_float64(pa.chunked_array([[1, None]]), "x")
    assert values.dtype == np.float64
    assert values[0] == 1
    assert np.isnan(values[1])
    assert as_float64(pa.chunked_array([["1.5", "", None]]), "x")[0] == 1.5
    assert as_float64(pa.chunked_array([[True, False]]), "x").tolist() == [1.0, 0.0]


def test_infinite_values_are_refused_with_their_rows():
    with pytest.raises(DataError, match=r"column 'x': 2 infinite values, first in rows 2, 4"):
        as_float64(pa.chunked_array([[1.0, np.inf, np.nan, -np.inf]]), "x")


def test_the_dtype_of_a_category_is_that_of_its_column():
    assert [dtype_of(kind) for kind in (pa.int8(), pa.bool_(), pa.string())] == ["integer", "boolean", "string"]


def test_slices_stand_beside_the_rows_under_names_of_their_own():
    source = pa.table({"x": [1.0, 2.0], "city": ["Rome", ""], "l": [[1], [2]]})
    rows = source.select(["x"])
    made = with_slices(rows, source, ["x", "city", "city"])
    assert made.column_names == ["x", "__slice:city"]
    assert made["__slice:city"].to_pylist() == ["Rome", None]
    with pytest.raises(DataError, match=r"judge\.slices: column 'l' is of type list<.*data\.features\.make"):
        with_slices(rows, source, ["l"])


@pytest.mark.parametrize("value", [pa.scalar(0, pa.date32()), pa.scalar([1.0]), pa.scalar(b"1")])
def test_a_column_of_another_type_is_no_column_of_numbers(value):
    with pytest.raises(DataError, match=r"column 'x' is .*, expected numbers: convert it in the source"):
        as_float64(pa.chunked_array([pa.array([value.as_py()], value.type)]), "x")


def test_large_decimals_are_their_own_text_and_small_ones_those_of_numbers():
    from decimal import Decimal

    values = [Decimal("9007199254740993.00"), Decimal("9007199254740992.50"), Decimal("3.00"), Decimal("1.50"), None]
    column = pa.chunked_array([pa.array(values, pa.decimal128(20, 2))])
    assert as_text(column).to_pylist() == ["9007199254740993", "9007199254740992.5", "3", "1.5", None]
    whole = pa.chunked_array([pa.array([Decimal(10) ** 20, Decimal(10) ** 20 + 1], pa.decimal128(30, 0))])
    assert as_text(whole).to_pylist() == ["100000000000000000000", "100000000000000000001"]
