import re

import numpy as np
import pyarrow as pa
import pytest

from models.data.check import check_columns, check_id, check_schema, table_schema
from models.data.header import no_such_column
from models.errors import DataError
from models.project_spec.blocks import Data


def test_an_id_names_one_row_each_and_may_be_missing():
    data = Data.model_validate({"source": "x.csv", "target": "y", "id": "key"})
    check_id(pa.table({"key": ["a", None, None]}), data)
    with pytest.raises(DataError, match=r"data\.id 'key': 'a' names 2 rows \(1 such ids\), expected one row for each"):
        check_id(pa.table({"key": ["a", "a", "b"]}), data)
    with pytest.raises(DataError, match=r"data\.id: no column 'key' .* did you mean 'keys'"):
        check_id(pa.table({"keys": ["a"]}), data)


def test_the_schema_is_plain_data():
    table = pa.table({"x": [1, None], "c": ["a", "b"]})
    assert table_schema(table) == [
        {"name": "x", "dtype": "int64", "nulls": 1},
        {"name": "c", "dtype": "string", "nulls": 0},
    ]


def schema(kind):
    return table_schema(pa.table({"x": pa.array([], kind)}))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (pa.int32(), pa.float64()),
        (pa.string(), pa.large_string()),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.null(), pa.string()),
        (pa.int64(), pa.null()),
    ],
)
def test_a_wider_type_and_an_empty_column_are_the_same_kind(make_spec, before, now):
    check_schema(schema(now), schema(before), make_spec().data)


@pytest.mark.parametrize(
    ("before", "now"), [(pa.int64(), pa.string()), (pa.string(), pa.bool_()), (pa.timestamp("s"), pa.int64())]
)
def test_a_changed_type_is_refused_with_both(make_spec, before, now):
    with pytest.raises(DataError, match=re.escape(f"'x' was {before} and is {now}")):
        check_schema(schema(now), schema(before), make_spec().data)


def test_a_dropped_column_may_change_its_type(make_spec):
    check_schema(schema(pa.int64()), schema(pa.string()), make_spec(features={"drop": ["x"]}).data)


@pytest.mark.parametrize(
    "reads", [{"features": {"make": "./f.py:make"}}, {"split": {"by": "time", "column": "x"}}, {"target": "x"}]
)
def test_a_dropped_column_that_is_read_all_the_same_may_not(make_spec, reads):
    features = {"drop": ["x"], **reads.get("features", {})}
    with pytest.raises(DataError, match="'x' was string and is int64"):
        check_schema(schema(pa.int64()), schema(pa.string()), make_spec(**{**reads, "features": features}).data)


def test_new_and_gone_columns_are_another_matter(make_spec):
    check_schema(schema(pa.int64()), [{"name": "gone", "dtype": "string", "nulls": 0}], make_spec().data)


def test_columns_that_the_spec_names_must_be_there(make_spec):
    table = pa.table({"alpha": range(20), "y": range(20)})
    check_columns(table, make_spec().data)
    with pytest.raises(DataError, match=r"data\.features\.drop: no column 'alfa'.*did you mean 'alpha'"):
        check_columns(table, make_spec(features={"drop": ["alfa"]}).data)
    with pytest.raises(DataError, match=r"data\.split\.column"):
        check_columns(table, make_spec(split={"by": "time", "column": "when"}).data)


def test_without_a_near_name_all_are_told():
    assert "which has a, b" in no_such_column("zzz", ["a", "b"])


DAY = pa.scalar(0, pa.date32())


@pytest.mark.parametrize(
    "value", [DAY, pa.scalar(0, pa.timestamp("us")), pa.scalar([1.0]), pa.scalar("1"), pa.scalar(None)]
)
def test_series_take_numbers_and_booleans_beforehand_and_predict_numbers(value):
    data = Data.model_validate(
        {
            "source": "x.csv",
            "target": "y",
            "kind": "series",
            "split": {"by": "time", "column": "t"},
            "window": {"length": 3, "horizon": [1, 2], "known_future": ["promo"]},
        }
    )
    wrong, right = pa.array([value.as_py()] * 12, value.type), pa.array([1.0] * 12)
    table = {"t": np.arange(12), "y": right, "promo": right}
    for good in (right, pa.array([True] * 12), pa.array([1] * 12)):
        check_columns(pa.table({**table, "promo": good}), data)
    with pytest.raises(DataError, match=r"known_future: column 'promo' is .*, expected numbers or booleans"):
        check_columns(pa.table({**table, "promo": wrong}), data)
    with pytest.raises(DataError, match=r"data.target: column 'y' is .*, expected numbers: convert it in the source"):
        check_columns(pa.table({**table, "y": wrong}), data)


def test_ids_may_become_text_where_a_number_does_not_hold_them(make_spec):
    data = make_spec().data.model_copy(update={"id": "x"})
    check_schema(schema(pa.string()), schema(pa.int64()), data)
    with pytest.raises(DataError, match="'x' was timestamp"):
        check_schema(schema(pa.string()), schema(pa.timestamp("s")), data)
