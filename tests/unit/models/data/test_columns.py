import pyarrow as pa
import pytest

from models.data.columns import choose, with_slices
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
    assert chosen.of("numeric") == ["i", "f"]
    assert chosen.of("categorical") == ["s", "b", "d"]
    assert chosen.of("datetime") == ["when"]
    assert set(chosen.left_out) == {"l"}


def test_the_spec_chooses_columns_and_kinds(make_spec):
    chosen = choose(SCHEMA, make_spec(features={"columns": ["i", "s"], "kinds": {"i": "categorical"}}).data)
    assert (chosen.of("numeric"), chosen.of("categorical")) == ([], ["i", "s"])
    assert chosen.left_out["f"] == "not in data.features.columns"


def test_columns_stand_in_the_order_of_the_spec(make_spec):
    chosen = choose(SCHEMA, make_spec(features={"columns": ["f", "i", "b", "s"]}).data)
    assert (chosen.of("numeric"), chosen.of("categorical")) == (["f", "i"], ["b", "s"])
    chosen = choose(SCHEMA, make_spec(features={"columns": ["s", "i", "b", "f"]}).data)
    assert (chosen.of("numeric"), chosen.of("categorical")) == (["i", "f"], ["s", "b"])


def test_the_split_column_is_an_input_only_when_asked_for(make_spec):
    split = {"by": "hash", "column": "i"}
    assert "i" in choose(SCHEMA, make_spec(split=split).data).left_out
    assert "i" in choose(SCHEMA, make_spec(split=split, features={"columns": ["i"]}).data).of("numeric")


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
    assert chosen.of("numeric") == ["y", "flag"]
    assert "encode it" in chosen.left_out["name"]


def test_slices_stand_beside_the_rows_under_names_of_their_own():
    source = pa.table({"x": [1.0, 2.0], "city": ["Rome", ""], "l": [[1], [2]]})
    rows = source.select(["x"])
    made = with_slices(rows, source, ["x", "city", "city"])
    assert made.column_names == ["x", "__slice:city"]
    assert made["__slice:city"].to_pylist() == ["Rome", None]
    with pytest.raises(DataError, match=r"judge\.slices: column 'l' is of type list<.*data\.features\.make"):
        with_slices(rows, source, ["l"])
