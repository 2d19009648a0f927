"""The rules for the values that a model takes."""

from datetime import date

import numpy as np
import pytest

from models.inference import row_values
from models.inference.row_values import RowError


def test_an_infinite_number_is_refused_with_its_row() -> None:
    assert row_values.in_range(np.array([1.0, np.nan]), "x")[0] == 1
    with pytest.raises(RowError, match="row 3, column 'x'"):
        row_values.in_range(np.array([1.0, np.nan, -np.inf]), "x")


def test_a_whole_number_beyond_float64_is_refused_with_its_row() -> None:
    with pytest.raises(RowError, match="row 3, column 'x': got inf, expected a number between"):
        row_values.numbers([1, None, 10**400], "x")


def test_a_message_stays_short_whatever_was_sent() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    assert row_values.shown(deep) == "a list of 1"
    assert row_values.shown({"a": deep}) == "an object"
    assert len(row_values.shown("x" * 10**6)) <= 40
    assert row_values.shown(None) == "null"


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [("3.0", "integer", "3"), ("-3", "integer", "-3"), ("3.50", "integer", "3.5"), ("1.2.0", "integer", "1.2.0"),
     ("3.0", "string", "3.0"), (4.0, "integer", "4"), (4.0, "string", "4"), ("TRUE", "boolean", "true"),
     (True, "string", "true"), (None, "boolean", ""), (1, "boolean", "true"), (0.0, "boolean", "false"),
     (float("nan"), "string", ""), (2.0**60, "integer", "1.152921504606847e+18"), (2**60, "integer", str(2**60)),
     (2**64 - 1, "string", str(2**64 - 1)), (10**20, "integer", "1e+20"), ("1" + "0" * 20, "integer", "1e+20"),
     ("1" + "0" * 20, "string", "1" + "0" * 20), (" 2024-06-01T02:00+02:00", "time", "2024-06-01"), (" ", "time", ""),
     ("2024-06-01 12:00:00.5", "time", "2024-06-01 12:00:00.500000"), (date(2024, 6, 1), "time", "2024-06-01")],
)  # fmt: skip
def test_a_category_is_its_text_in_training(value: object, dtype: str, text: str) -> None:
    assert row_values.categories([value], "c", dtype).tolist() == [text]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.5, "string"),
        (1.5, "boolean"),
        (float("inf"), "integer"),
        ([], "string"),
        (2.0**53, "string"),
        (2**64, "string"),
        (10**400, "integer"),
    ],
)
def test_a_value_that_is_no_category_is_refused(value: object, dtype: str) -> None:
    with pytest.raises(RowError, match=r"row 8, column 'c': got .*, expected text, or null for missing"):
        row_values.categories(["a", value], "c", dtype, first=7)


@pytest.mark.parametrize("value", [1717243200, "June", True])
def test_a_category_of_a_column_of_times_is_a_time(value: object) -> None:
    with pytest.raises(RowError, match=r"row 1, column 'c': got .*, expected a time or a date in ISO 8601, or null"):
        row_values.categories([value], "c", "time")


def test_cells_of_a_numeric_column() -> None:
    cells = ["", " ", "NA", None, " 1.5", "TRUE", "1_0", "word"]
    assert row_values.number_cells(cells) == [None, None, None, None, 1.5, True, "1_0", "word"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "got no CSV"),
        (b"a,b\n1", "row 1: got a list of 1"),
        (b"a,a\n1,2", "'a'"),
        (b"a\n", "no rows"),
        (b"\xff", "UTF-8"),
    ],
)
def test_what_is_no_csv_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(RowError, match=message):
        row_values.csv_columns(content)


@pytest.mark.parametrize(("content", "line"), [(b'a,b\n1,"x\n2\n', 2), (b'a,b\n1,x\n2,"y', 3), (b'"a,b\n\n', 1)])
def test_a_quote_that_is_never_closed_is_named_by_its_line(content: bytes, line: int) -> None:
    with pytest.raises(RowError, match=f"CSV, line {line}: a quote is opened and never closed"):
        row_values.csv_cells(content)


def test_a_window_without_a_known_value_is_named() -> None:
    parts = [("y", 0), ("promo", 2)]
    row_values.check_known(np.array([[np.nan, 1.0]]), parts, str)
    with pytest.raises(RowError, match=r"step 1: no value of 'promo' for the step 2 ahead, .* known beforehand"):
        row_values.check_known(np.array([[0.0, 1.0], [0.0, np.nan]]), parts, "step {}".format)
