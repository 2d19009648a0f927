import re

import pyarrow as pa
import pytest

from models.data.check import check_columns, check_schema, no_such_column, table_schema
from models.errors import DataError


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
    [(pa.int32(), pa.float64()), (pa.string(), pa.large_string()), (pa.timestamp("s"), pa.timestamp("us"))],
)
def test_a_wider_type_is_the_same_kind(before, now):
    check_schema(schema(now), schema(before))


@pytest.mark.parametrize(
    ("before", "now"), [(pa.int64(), pa.string()), (pa.string(), pa.bool_()), (pa.timestamp("s"), pa.int64())]
)
def test_a_changed_type_is_refused_with_both(before, now):
    with pytest.raises(DataError, match=re.escape(f"'x' was {before} and is {now}")):
        check_schema(schema(now), schema(before))


def test_new_and_gone_columns_are_another_matter():
    check_schema(schema(pa.int64()), [{"name": "gone", "dtype": "string", "nulls": 0}])


def test_columns_that_the_spec_names_must_be_there(make_spec):
    table = pa.table({"alpha": range(20), "y": range(20)})
    check_columns(table, make_spec().data)
    with pytest.raises(DataError, match=r"data\.features\.drop: no column 'alfa'.*did you mean 'alpha'"):
        check_columns(table, make_spec(features={"drop": ["alfa"]}).data)
    with pytest.raises(DataError, match=r"data\.split\.column"):
        check_columns(table, make_spec(split={"by": "time", "column": "when"}).data)


def test_without_a_near_name_all_are_told():
    assert "which has a, b" in no_such_column("zzz", ["a", "b"])
