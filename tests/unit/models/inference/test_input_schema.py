"""Rows whatever protocol brought them: shapes and names that are refused, and how a message shows them."""

import numpy as np
import pytest

from models.errors import DataError
from models.inference import row_values
from models.inference.input_schema import (
    InputRows,
    check_columns,
    check_complete,
    check_names,
    check_records,
    column_of,
    columns_of_records,
    listed,
    refusing,
)
from models.inference.table import TableSchema
from models.inference.tensors import TensorSpec
from tests.finished_jobs import table_preparation


def test_the_number_of_rows_is_that_of_any_input() -> None:
    assert InputRows({"x": np.zeros(3), "c": np.zeros(3)}).num_rows == 3


@pytest.mark.parametrize(
    ("records", "said"),
    [([], "no rows"), ({}, "an object, expected a list"), ([{}, 3], "row 2: got 3"), ([[1]], "row 1: got a list of 1")],
)
def test_records_are_objects(records: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        check_records(records)  # type: ignore[arg-type]


def test_what_a_record_lacks_is_missing_in_its_column() -> None:
    assert columns_of_records([{"a": 1}, {"b": 2}]) == {"a": [1, None], "b": [None, 2]}


def test_a_record_must_have_what_the_model_takes_among_others_too() -> None:
    check_complete([{"a": 1}, {"a": 2, "b": 3}], ["a"])
    with pytest.raises(DataError, match="row 2: the model takes 'a': got 'b': give null for a missing value"):
        check_complete([{"a": 1}, {"b": 2}], ["a"])
    with pytest.raises(DataError, match="row 1: the model takes 'shop': got 'a': give it in each row"):
        check_complete([{"a": 1}], ["a", "shop"], ["shop"])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "no columns"),
        ({"a": 1}, "'a': got 1, expected a list"),
        ({"a": [1, 2], "b": [1]}, "'b' has 1 values, another 2"),
        ({"a": []}, "no rows"),
    ],
)
def test_columns_are_lists_of_one_length(columns: dict[str, object], said: str) -> None:
    with pytest.raises(DataError, match=said):
        check_columns(columns)  # type: ignore[arg-type]


def test_a_column_that_is_not_there_is_told_with_the_nearest() -> None:
    assert column_of({"a": [1]}, "a") == [1]
    with pytest.raises(DataError, match="takes 'weight': did you mean it by 'weigth'"):
        column_of({"weigth": [1]}, "weight")
    with pytest.raises(DataError, match="takes 'weight': got 'a', 'b'"):
        column_of({"a": [1], "b": [2]}, "weight")


def test_a_tensor_that_is_no_input_is_told_with_those_that_are() -> None:
    check_names(["x"], [TensorSpec("x", "FP64", (-1,))])
    with pytest.raises(DataError, match="takes no 'z': its inputs are 'x'"):
        check_names(["z"], [TensorSpec("x", "FP64", (-1,))])


def test_columns_beside_the_known_ones_are_kept() -> None:
    assert columns_of_records([{"x": 1, "a": 2}, {"x": 3}], {"x"}) == {"a": [2, None]}


def test_names_in_a_message_are_few() -> None:
    assert listed(["a"] * 10) == ", ".join(["'a'"] * 8) + " and 2 more"


def test_a_refusal_of_a_value_is_one_of_the_data() -> None:
    with pytest.raises(DataError, match="row 1, column 'x': got 'a', expected a number"):
        refusing(row_values.numbers)(["a"], "x")


def test_a_missing_column_names_the_nearest():
    with pytest.raises(DataError, match=r"new\.csv: the model takes 'month'.*did you mean 'Month'"):
        TableSchema(table_preparation()).check_header(["größe (m)", "n/1", "city", "Month", "is late"], "new.csv")
