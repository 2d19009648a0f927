"""Values of databases become plain types exactly, or their column is named."""

from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from models.errors import DataError
from models.sources.databases.plain_types import decimal_type, plain


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    schema = pa.schema([pa.field("x", kind)])
    return plain(pa.RecordBatch.from_arrays([column], names=["x"]), schema).column(0)


def test_digits_have_the_smallest_type_that_holds_all_of_them() -> None:
    assert decimal_type(5, 2) == pa.decimal128(5, 2)
    assert decimal_type(2, 12) == pa.decimal128(12, 12)
    assert decimal_type(45, 15) == pa.decimal256(45, 15)
    assert decimal_type(77, 0) is None


def test_texts_of_numerics_keep_each_digit_and_nan_is_missing() -> None:
    texts = pa.array(["0.000000000001234", "nan", None, "123456789012345678901234567890"])
    assert _plain(texts, pa.decimal256(45, 15)).to_pylist() == [
        Decimal("1.234E-12"),
        None,
        None,
        Decimal("123456789012345678901234567890"),
    ]


def test_infinity_and_misfits_name_their_column() -> None:
    with pytest.raises(DataError, match="column 'x' holds infinity, which no decimal is"):
        _plain(pa.array(["1", "-inf"]), pa.decimal128(5, 2))
    with pytest.raises(DataError, match="column 'x': a value does not fit"):
        _plain(pa.array(["1.234"]), pa.decimal128(3, 1))
    far = pa.array([2**63 - 1, 0], pa.int64()).view(pa.timestamp("us"))
    with pytest.raises(DataError, match="column 'x' holds infinity, or a time outside"):
        _plain(far, pa.timestamp("us"))
    with pytest.raises(DataError, match="column 'x' holds infinity"):
        _plain(pa.array([-(2**31)], pa.int32()).view(pa.date32()), pa.date32())


def test_times_of_each_year_pass() -> None:
    ends = pa.array([datetime.min, None, datetime.max], pa.timestamp("us"))
    assert _plain(ends, pa.timestamp("us")) == ends
