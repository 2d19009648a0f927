"""The validation page: what broke comes first, rows are named, text is escaped."""

import pytest

from models.report.validation import render_validation, summary

BROKEN = {
    "expectation": "expect_column_values_to_be_between",
    "column": "distance",
    "arguments": {"column": "distance", "min_value": 1},
    "severity": "reject",
    "success": False,
    "observed": {"min": -12},
    "unexpected_count": 41_234,
    "unexpected_percent": 12.244,
    "examples": [{"__row": 11, "distance": -12}, {"__row": 12}],
}
WARNED = {"expectation": "column_values_to_be_in_set", "column": "origin", "severity": "warn", "success": False}
ERRORED = {
    "expectation": "column_max_to_be_between",
    "column": "gone",
    "severity": "reject",
    "error": "KeyError: 'gone'",
}
MET = {"expectation": "table_row_count_to_be_between", "severity": "reject", "success": True, "observed": 336_776}


def report(*results, success=False):
    return {
        "project": "flights",
        "dataset": "7f3a",
        "rows": 336_776,
        "columns": 19,
        "success": success,
        "results": results,
    }


def test_a_rejected_report_says_what_broke_where_and_in_which_rows():
    html = render_validation(report(MET, BROKEN))
    for text in ("The data is rejected", "Every value is at least 1.", "41\u202f234", "12.24 %", "min: −12"):
        assert text in html
    assert "__row" not in html
    assert html.index("distance") < html.index("There are")
    assert 'class="light red"' in html


@pytest.mark.parametrize(
    ("results", "success", "light", "words"),
    [
        ([MET], True, "green", "accepted: 1 of 1 expectations met."),
        ([MET, WARNED], True, "amber", "1 broken that only warn"),
        ([ERRORED], False, "red", "1 that could not be checked"),
        ([], True, "green", "Nothing was expected"),
    ],
)
def test_the_light_and_the_sentence_follow_severity(results, success, light, words):
    assert words in summary(report(*results, success=success))
    assert f'class="light {light}"' in render_validation(report(*results, success=success))


def test_a_check_that_could_not_run_is_no_failure_of_the_data():
    html = render_validation(report(ERRORED))
    assert "could not be run: KeyError" in html
    assert "not checked" in html


def test_rows_of_a_user_cannot_become_markup():
    evil = "<script>alert(1)</script>"
    html = render_validation(
        report({**BROKEN, "column": evil, "examples": [{evil: evil}], "observed": evil, "error": evil})
    )
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_plain_examples_and_missing_keys():
    html = render_validation({"results": [{**WARNED, "examples": ["BOS", "PHL"]}]})
    assert "BOS" in html
    assert "https:" not in html
