"""Decimal commas are told from thousands."""

import pyarrow as pa
import pytest

from models.sources.readers.decimal_commas import decimal_commas


@pytest.mark.parametrize(
    ("columns", "delimiter", "names"),
    [
        (
            {"x": ["1,5", None], "y": ["1.087.863", "3"], "z": ["1.5", "2"], "when": ["01.06.2024", "3"]},
            ";",
            ["x", "y"],
        ),
        ({"y": ["1.087", "94.001"]}, ";", []),
        ({"x": ["1,234", "5,678"]}, ";", ["x"]),
        ({"x": ["1,234", "5,678"]}, ",", []),
        ({"x": ["1,234", "0,678"]}, ",", ["x"]),
        ({"x": ["1.234,567", "5,678"]}, ",", ["x"]),
        ({"x": [None, None], "y": ["a", "1,5"]}, ";", []),
    ],
)
def test_decimal_commas_are_told_from_thousands(columns, delimiter, names):
    table = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    assert decimal_commas(table, delimiter) == names
