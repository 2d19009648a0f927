import numpy as np
import pyarrow as pa
import pytest

from models.errors import DataError
from models.inputs.types import as_float64, as_text, dtype_of


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


@pytest.mark.parametrize("value", [pa.scalar(0, pa.date32()), pa.scalar([1.0]), pa.scalar(b"1")])
def test_a_column_of_another_type_is_no_column_of_numbers(value):
    with pytest.raises(DataError, match=r"column 'x' is .*, expected numbers: convert it in the source"):
        as_float64(pa.chunked_array([pa.array([value.as_py()], value.type)]), "x")


def test_large_decimals_are_their_own_text_and_small_ones_those_of_numbers():
    from decimal import Decimal

    values = [Decimal("9007199254740993.00"), Decimal("9007199254740992.50"), Decimal("3.00"), Decimal("1.50"), None]
    column = pa.chunked_array([pa.array(values, pa.decimal128(20, 2))])
    assert as_text(column).to_pylist() == ["9007199254740993", "9007199254740992.5", "3", "1.5", None]
    assert as_float64(pa.chunked_array([pa.array([Decimal("7.14"), None])]), "x")[0] == 7.14
    whole = pa.chunked_array([pa.array([Decimal(10) ** 20, Decimal(10) ** 20 + 1], pa.decimal128(30, 0))])
    assert as_text(whole).to_pylist() == ["100000000000000000000", "100000000000000000001"]
