"""What no data can pass is refused from the spec alone, with the place, what was got and what is expected."""

import pytest

from models.errors import DataError, UsageError
from models.project_spec.block import Expectation
from models.validation.expectation_arguments import check_expectations, columns_of

COLUMNS = ["a", "b", "y"]


def check(expect, on="raw", names=COLUMNS, **arguments):
    check_expectations([Expectation(expect=expect, on=on, arguments=arguments)], names)


@pytest.mark.parametrize(
    ("expect", "arguments"),
    [
        ("column_values_to_be_between", {"column": "a", "min_value": 0}),
        ("expect_column_values_to_match_regex", {"column": "a", "regex": "^[a-z]+$", "mostly": 0.9}),
        ("column_values_to_match_regex_list", {"column": "a", "regex_list": ["a", "b+"], "match_on": "any"}),
        ("column_pair_values_a_to_be_greater_than_b", {"column_A": "a", "column_B": "b", "or_equal": True}),
        ("compound_columns_to_be_unique", {"column_list": ["a", "b"]}),
        ("column_values_to_be_between", {"column": "a", "min_value": "2022-01-02", "max_value": "2022-01-01"}),
        ("column_to_exist", {"column": "z"}),
        ("table_columns_to_match_set", {"column_set": ["z"]}),
    ],
)
def test_what_can_be_evaluated_passes(expect, arguments):
    check(expect, **arguments)


@pytest.mark.parametrize(
    ("expect", "arguments", "message"),
    [
        ("nope", {}, r"data.expectations.0.expect: got 'nope', expected a check that Great Expectations has"),
        ("column_values_to_be_betwen", {}, "did you mean 'column_values_to_be_between'"),
        ("__init__", {}, "got '__init__'"),
        ("column_values_to_match_like_pattern", {"column": "a", "like_pattern": "x"}, "for data frames|did you mean"),
        ("column_values_to_be_unique", {"colum": "a"}, r"arguments.colum: .*did you mean 'column'"),
        ("column_values_to_be_in_set", {"column": "a"}, "needs value_set, got column: add it"),
        ("column_values_to_be_between", {"column": "a"}, "got neither min_value nor max_value"),
        ("column_values_to_be_between", {"column": "a", "min_value": 9, "max_value": 0}, "min_value 9 and max_value 0"),
        ("column_values_to_be_unique", {"column": "a", "mostly": 90}, r"mostly: got 90, expected a share from 0 to 1"),
        ("column_values_to_match_regex", {"column": "y", "regex": "("}, r"regex: got '\(', expected a regular expr"),
        ("column_values_to_match_regex_list", {"column": "y", "regex_list": ["a", "["]}, r"regex_list: got '\['"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(expect, arguments, message):
    with pytest.raises(UsageError, match=message):
        check(expect, **arguments)


def test_columns_are_those_of_the_raw_table_where_it_is_known():
    for arguments in ({"column": "zz", "min_value": 0}, {"column": "aa", "min_value": 0}):
        with pytest.raises(DataError, match=r"data.expectations.0.arguments: no column"):
            check("column_values_to_be_between", **arguments)
        check("column_values_to_be_between", names=None, **arguments)
        check("column_values_to_be_between", on="prepared", **arguments)
    assert [*columns_of("compound_columns_to_be_unique", {"column_list": ["a", "b"]})] == ["a", "b"]
    assert [*columns_of("table_columns_to_match_set", {"column_set": ["a"]})] == []
