"""Expectations are sentences that a person who knows no tool understands."""

from __future__ import annotations

from typing import Any

import pytest

from models.report.data_pages.sentences import broken, outcome, sentence, subject
from models.validation.data_profile import CheckedExpectation

SEVEN = "0, 1, 2, 3, 4, 5, 6, 7"


def check(expectation: str, **values: Any) -> CheckedExpectation:
    return CheckedExpectation(**{"stage": "raw", "expectation": expectation, "success": True, **values})


@pytest.mark.parametrize(
    ("expectation", "arguments", "expected"),
    [
        ("column_values_to_not_be_null", {"mostly": 0.9}, "At least 90 % of the values are there."),
        ("column_values_to_not_be_null", {}, "Every value is there."),
        ("column_values_to_be_between", {"min_value": 2, "max_value": 8}, "Every value is 2 to 8."),
        ("column_values_to_be_between", {"min_value": 0}, "Every value is at least 0."),
        (
            "column_mean_to_be_between",
            {"min_value": 0, "max_value": 2, "strict_min": True, "row_condition": 'x == "a"'},
            'The mean is more than 0 and at most 2, of the rows where x == "a".',
        ),
        ("column_values_to_be_in_set", {"value_set": ["a", "b"]}, "Every value is one of a, b."),
        ("column_values_to_be_in_set", {"value_set": [*range(10)]}, f"Every value is one of {SEVEN} and 2 more."),
        ("table_row_count_to_be_between", {"min_value": 10}, "There are at least 10 rows."),
        ("column_to_exist", {"column": "x"}, "The column is there."),
        ("column_values_to_be_dateutil_parseable", {}, "Values to be dateutil parseable."),
        ("rows_to_sum_up", {"total": 3}, "Rows to sum up (total: 3)."),
    ],
)  # fmt: skip
def test_a_sentence_says_what_must_hold(expectation: str, arguments: dict[str, Any], expected: str) -> None:
    assert sentence(f"expect_{expectation}", arguments) == sentence(expectation, arguments) == expected


def test_what_broke_it_is_told_with_its_rows() -> None:
    failed = check("column_values_to_be_unique", column="x", success=False, unexpected_count=12, unexpected_percent=3.4)
    assert (subject(failed), broken(failed), outcome(failed)) == ("x", "12 rows break it (3.4 %).", ("rejected", "red"))
    seen = check("table_row_count_to_be_between", success=False, observed=7, severity="warn")
    assert (subject(seen), broken(seen), outcome(seen)) == ("the source", "Seen: 7.", ("warning", "amber"))
    away = check("x", success=False, error="no such column")
    assert (broken(away), outcome(away)[0]) == ("It could not be checked: no such column", "not checked")
    assert broken(check("x")) == ""
