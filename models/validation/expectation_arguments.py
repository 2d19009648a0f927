"""The expectations of Great Expectations that a spec may name, with their arguments, and their check before a run.

Importing Great Expectations takes seconds, so that its names stand here; a test compares them with the library's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeGuard

from models.data.header import no_such_column
from models.errors import DataError, UsageError, did_you_mean
from models.project_spec.block import Expectation
from models.project_spec.references import is_own_code

QUERY = "unexpected_rows_expectation"
"""The check by a query in SQL: it expects no rows."""

_ROWS = ("row_condition", "condition_parser")
_SOME = ("mostly", *_ROWS)
_RANGE = ("min_value", "max_value", "strict_min", "strict_max")
_BOUNDED = ("column_value_lengths_to_be_between", "column_values_to_be_between")
"""These need one bound at least."""
_OF_RECORD = ("mostly", "ignore_row_if", *_ROWS)
_COLUMN, _PAIR, _LIST = ("column",), ("column_A", "column_B"), ("column_list",)
EXPECTATIONS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    **{
        f"column_distinct_values_to_{relation}_set": ((*_COLUMN, "value_set"), _ROWS)
        for relation in ("be_in", "contain", "equal")
    },
    **{
        f"column_{quantity}_to_be_between": (_COLUMN, (*_RANGE, *_ROWS))
        for quantity in (
            *("max", "mean", "median", "min", "stdev", "sum", "unique_value_count"),
            *("proportion_of_non_null_values", "proportion_of_unique_values"),
        )
    },
    "column_kl_divergence_to_be_less_than": (
        _COLUMN,
        (
            *("partition_object", "threshold", "internal_weight_holdout", "tail_weight_holdout", "bucketize_data"),
            *("min_value", "max_value", *_ROWS),
        ),
    ),
    "column_most_common_value_to_be_in_set": ((*_COLUMN, "value_set"), ("ties_okay", *_ROWS)),
    "column_pair_values_a_to_be_greater_than_b": (_PAIR, ("or_equal", *_OF_RECORD)),
    "column_pair_values_to_be_equal": (_PAIR, _OF_RECORD),
    "column_pair_values_to_be_in_set": ((*_PAIR, "value_pairs_set"), _OF_RECORD),
    "column_quantile_values_to_be_between": ((*_COLUMN, "quantile_ranges"), ("allow_relative_error", *_ROWS)),
    "column_to_exist": (_COLUMN, ("column_index",)),
    "column_type_to_be": ((*_COLUMN, "type_"), ()),
    "column_value_lengths_to_be_between": (_COLUMN, (*_RANGE, *_SOME)),
    "column_value_lengths_to_equal": ((*_COLUMN, "value"), _SOME),
    "column_value_z_scores_to_be_less_than": ((*_COLUMN, "threshold", "double_sided"), _SOME),
    "column_values_to_be_between": (_COLUMN, (*_RANGE, *_SOME)),
    **{
        f"column_values_to_be_{property_}": (_COLUMN, _SOME)
        for property_ in ("dateutil_parseable", "json_parseable", "null", "unique")
    },
    **{
        f"column_values_to_be_{direction}": (_COLUMN, ("strictly", *_SOME))
        for direction in ("decreasing", "increasing")
    },
    **{f"column_values_to_{relation}_in_set": ((*_COLUMN, "value_set"), _SOME) for relation in ("be", "not_be")},
    "column_values_to_be_in_type_list": (_COLUMN, ("type_list", *_SOME)),
    "column_values_to_be_of_type": ((*_COLUMN, "type_"), _SOME),
    "column_values_to_match_json_schema": ((*_COLUMN, "json_schema"), _SOME),
    "column_values_to_match_regex": (_COLUMN, ("regex", *_SOME)),
    "column_values_to_match_regex_list": ((*_COLUMN, "regex_list"), ("match_on", *_SOME)),
    "column_values_to_match_strftime_format": ((*_COLUMN, "strftime_format"), _SOME),
    "column_values_to_not_be_null": (_COLUMN, _SOME),
    "column_values_to_not_be_outliers": (_COLUMN, ("method", "multiplier", *_SOME)),
    "column_values_to_not_match_regex": ((*_COLUMN, "regex"), _SOME),
    "column_values_to_not_match_regex_list": ((*_COLUMN, "regex_list"), _SOME),
    "compound_columns_to_be_unique": (_LIST, _OF_RECORD),
    "multicolumn_values_to_be_equal": (_LIST, _OF_RECORD),
    "multicolumn_sum_to_equal": ((*_LIST, "sum_total"), _OF_RECORD),
    "select_column_values_to_be_unique_within_record": (_LIST, _OF_RECORD),
    "table_column_count_to_be_between": ((), ("min_value", "max_value")),
    "table_column_count_to_equal": (("value",), ()),
    "table_columns_to_match_ordered_list": ((), ("column_list",)),
    "table_columns_to_match_set": ((), ("column_set", "exact_match")),
    "table_row_count_to_be_between": ((), (*_RANGE, *_ROWS)),
    "table_row_count_to_equal": (("value",), _ROWS),
    QUERY: (("unexpected_rows_query",), ()),
}
"""Name in snake case -> the arguments that it needs, and those that it may have besides."""
_OF_ALL_ROWS = (
    *("column_value_z_scores_to_be_less_than", "column_values_to_not_be_outliers", "column_values_to_be_unique"),
    *("column_values_to_be_decreasing", "column_values_to_be_increasing", "compound_columns_to_be_unique"),
    *("column_values_to_be_of_type", "column_values_to_be_in_type_list"),
)
ROW_WISE = frozenset(
    name
    for name in EXPECTATIONS
    if name.startswith(("column_pair_", "column_value_", "column_values_", "multicolumn_", "select_column_values_"))
    and name not in _OF_ALL_ROWS
)
"""The checks that look at each row by itself: the answer for a table is the sum of those for slices of it."""
OF_EQUAL_VALUES = frozenset({"column_values_to_be_unique", "compound_columns_to_be_unique"})
"""The checks that compare rows of equal values: the answer is the sum of those for parts that divide no such rows."""
COLUMN_ARGUMENTS = ("column", "column_A", "column_B")
LIST_ARGUMENTS = ("column_list", "column_set")
_REGEXES = ("regex", "regex_list")


def check_expectations(expectations: Sequence[Expectation], names: Collection[str] | None = None) -> None:
    """Refuse expectations that cannot be evaluated: no such name, argument, column or regular expression, empty range.

    Args:
        expectations: The spec's.
        names: The columns of the raw table, for those `on: raw`; None: not known.

    Raises:
        UsageError: Names the expectation, what was got and what is expected.
        DataError: There is no such column.
    """
    for position, expectation in enumerate(expectations):
        key, name = f"data.expectations.{position}", expectation.expect.removeprefix("expect_")
        is_own = is_own_code(expectation.expect)
        if not is_own and name not in EXPECTATIONS:
            cure = did_you_mean(name, EXPECTATIONS, "expected a check that Great Expectations has for data frames")
            raise UsageError(f"{key}.expect: got {expectation.expect!r}, {cure}")
        if not is_own:
            _check_arguments(f"{key}.arguments", name, expectation.arguments)
        if names is not None and expectation.on == "raw" and name != "column_to_exist":
            for column in columns_of(name, expectation.arguments):
                if column not in names:
                    raise DataError(f"{key}.arguments: {no_such_column(column, list(names))}")


def columns_of(name: str, arguments: dict[str, Any]) -> Iterator[str]:
    """Yield the columns that a check reads, by its name and its arguments."""
    yield from (arguments[key] for key in COLUMN_ARGUMENTS if isinstance(arguments.get(key), str))
    if not name.startswith("table_"):
        yield from (column for key in LIST_ARGUMENTS for column in arguments.get(key) or ())


def _check_arguments(key: str, name: str, arguments: dict[str, Any]) -> None:
    needed, optional = EXPECTATIONS[name]
    names = [*needed, *optional]
    for argument in arguments:
        if argument not in names:
            cure = did_you_mean(argument, names, f"expected {', '.join(names)}")
            raise UsageError(f"{key}.{argument}: {name} has no argument {argument!r}: {cure}")
    missing = [argument for argument in needed if argument not in arguments]
    if missing:
        raise UsageError(f"{key}: {name} needs {', '.join(missing)}, got {', '.join(arguments) or 'nothing'}: add it")
    low, high = (arguments.get(end) for end in ("min_value", "max_value"))
    if low is None and high is None and name in _BOUNDED:
        raise UsageError(f"{key}: {name} got neither min_value nor max_value, expected at least one: add it")
    if _is_number(low) and _is_number(high) and low > high:
        raise UsageError(f"{key}: got min_value {low} and max_value {high}, expected min_value <= max_value")
    mostly = arguments.get("mostly", 1)
    if not (_is_number(mostly) and 0 <= mostly <= 1):
        raise UsageError(f"{key}.mostly: got {mostly!r}, expected a share from 0 to 1")
    query = arguments.get("unexpected_rows_query", "{batch}")
    if not (isinstance(query, str) and "{batch}" in query):
        raise UsageError(f"{key}.unexpected_rows_query: got {query!r}, expected a SELECT from the table {{batch}}")
    for argument in _REGEXES:
        for pattern in _listed(arguments.get(argument, [])):
            _check_regex(f"{key}.{argument}", pattern)


def _check_regex(key: str, pattern: Any) -> None:
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise UsageError(f"{key}: got {pattern!r}, expected a regular expression: {error}") from error


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
