"""Columns of dates in a form of their own are times, however the source holds them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from models.errors import DataError
from models.inference.forms import with_forms
from models.sources.delimiter import DECIMAL_COMMA

NEW_YEAR = datetime(2024, 1, 31, 9, 5)


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("%d.%m.%Y %H:%M", ["31.01.2024 09:05", " 31.1.2024 9:05", "2024-01-31T10:05+01:00", "", None]),
        ("%Y%m%d%H%M", [202401310905, 202401310905, 202401310905, None, None]),
        ("%Y%m%d%H%M", [202401310905.0, 202401310905.0, 202401310905.0, float("nan"), None]),
        ("%Y%m%d%H%M", [Decimal(202401310905), Decimal(202401310905), Decimal(202401310905), None, None]),
        ("%d.%m.%Y", [NEW_YEAR, NEW_YEAR, NEW_YEAR, None, None]),
    ],
    ids=["texts", "whole numbers", "floats", "decimals", "times"],
)
def test_texts_and_whole_numbers_become_times(form: str, values: list[object]) -> None:
    table = with_forms(pa.table({"x": [1] * 5, "at": values}), {"at": form, "absent": form})
    assert table.column_names == ["x", "at"]
    assert table.column("at").to_pylist() == [NEW_YEAR] * 3 + [None] * 2


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (["1.234,5", " -0,25", "7", "1.087.863", ",5", "3,", "1,5E-03", "0", "", None],
         [1234.5, -0.25, 7.0, 1087863.0, 0.5, 3.0, 0.0015, 0.0, None, None]),
        ([1234, 7, None], [1234.0, 7.0, None]),
        ([1234.5, None], [1234.5, None]),
    ],
    ids=["texts", "whole numbers", "numbers"],
)  # fmt: skip
def test_texts_with_decimal_commas_become_numbers(values: list[object], numbers: list[float | None]) -> None:
    column = with_forms(pa.table({"x": values}), {"x": DECIMAL_COMMA}).column("x")
    assert column.to_pylist() == numbers


@pytest.mark.parametrize("text", ["1.5", "1,2,3", "12.34,5", "1 234,5", "abc", "NA", "."])
def test_a_text_that_is_no_number_with_a_comma_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"row 2, column 'x': got .*, expected a number with a decimal comma such as 1"):
        with_forms(pa.table({"x": ["1,5", text]}), {"x": DECIMAL_COMMA})


def test_a_text_of_another_form_is_refused_with_its_row() -> None:
    table = pa.table({"at": ["31.01.2024", "", "01/31/2024"]})
    with pytest.raises(DataError, match=r"row 12, column 'at': got '01/31/2024', expected a time such as 31\.05\.2024"):
        with_forms(table, {"at": "%d.%m.%Y"}, first_row=10)
