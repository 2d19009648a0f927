"""Expectations as sentences: what must hold, and what of the data broke it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from models.report.pages import show
from models.validation.data_profile import CheckedExpectation

Arguments = Mapping[str, Any]
MOST_VALUES = 8
"""Values of a set that a sentence names."""
_STAGES = {"raw": "the source", "prepared": "the prepared rows"}
_OWN_COLUMNS = {"__row": "row of the source", "__split": "split"}
"""Columns that Loopline adds, in words."""


def sentence(expectation: str, arguments: Arguments) -> str:
    """Return what was expected, such as `At least 90 % of the values are there.`, without the column's name."""
    text = clause(expectation, arguments)
    return f"{text[:1].upper()}{text[1:]}."


def clause(expectation: str, arguments: Arguments) -> str:
    """Return the sentence without its capital and its full stop; `expectation` may begin with `expect_`."""
    name = expectation.removeprefix("expect_")
    rest = {key: value for key, value in arguments.items() if key != "column"}
    write = _SENTENCES.get(name)
    if write is None:
        words = name.removeprefix("column_").replace("_", " ")
        return f"{words} ({', '.join(f'{key}: {show(value)}' for key, value in rest.items())})".removesuffix(" ()")
    rows = rest.get("row_condition")
    return f"{write(rest)}, of the rows where {rows}" if rows else write(rest)


def column_words(name: str) -> str:
    """Return a column's name, or what it is if Loopline has added it."""
    return _OWN_COLUMNS.get(name, name)


def subject(check: CheckedExpectation) -> str:
    """Return what the expectation is about: a column's name, or what it looks at as a whole."""
    whole = _STAGES.get(check.stage, check.stage)
    return column_words(check.column) if check.column else whole


def broken(check: CheckedExpectation) -> str:
    """Return what broke the expectation; empty: it was met."""
    if check.error:
        return f"It could not be checked: {check.error}"
    if check.success:
        return ""
    if check.unexpected_count:
        share = f" ({show(check.unexpected_percent)} %)" if check.unexpected_percent is not None else ""
        return f"{show(check.unexpected_count)} rows break it{share}."
    return f"Seen: {show(check.observed)}." if check.observed is not None else "It does not hold."


def outcome(check: CheckedExpectation) -> tuple[str, str]:
    """Return the outcome in a word and its colour."""
    if check.error:
        return "not checked", "red"
    if check.success:
        return "met", "green"
    return ("warning", "amber") if check.severity == "warn" else ("rejected", "red")


def _between(arguments: Arguments) -> str:
    low, high = arguments.get("min_value"), arguments.get("max_value")
    above = "more than" if arguments.get("strict_min") else "at least"
    below = "less than" if arguments.get("strict_max") else "at most"
    if None not in (low, high) and (above, below) == ("at least", "at most"):
        return f"{show(low)} to {show(high)}"
    bounds = [f"{words} {show(bound)}" for words, bound in ((above, low), (below, high)) if bound is not None]
    return " and ".join(bounds)


def _share(arguments: Arguments) -> str:
    share = arguments.get("mostly", 1)
    return "every value" if share == 1 else f"at least {show(round(100 * share, 2))} % of the values"


def _verb(arguments: Arguments, singular: str, plural: str) -> str:
    return singular if arguments.get("mostly", 1) == 1 else plural


def _set(arguments: Arguments) -> str:
    values = arguments.get("value_set") or []
    named = ", ".join(str(show(value)) for value in values[:MOST_VALUES])
    return named if len(values) <= MOST_VALUES else f"{named} and {len(values) - MOST_VALUES} more"


def _of_values(singular: str, plural: str, rest: Callable[[Arguments], str]) -> Callable[[Arguments], str]:
    return lambda arguments: f"{_share(arguments)} {_verb(arguments, singular, plural)} {rest(arguments)}".rstrip()


def _of_statistic(name: str) -> Callable[[Arguments], str]:
    return lambda arguments: f"{name} is {_between(arguments)}"


_SENTENCES: dict[str, Callable[[Arguments], str]] = {
    "table_row_count_to_be_between": lambda arguments: f"there are {_between(arguments)} rows",
    "table_column_count_to_be_between": lambda arguments: f"there are {_between(arguments)} columns",
    "column_to_exist": lambda _: "the column is there",
    "column_values_to_not_be_null": _of_values("is", "are", lambda _: "there"),
    "column_values_to_be_null": _of_values("is", "are", lambda _: "missing"),
    "column_values_to_be_unique": lambda _: "no value comes twice",
    "column_values_to_be_in_set": _of_values("is", "are", lambda arguments: f"one of {_set(arguments)}"),
    "column_values_to_not_be_in_set": _of_values("is", "are", lambda arguments: f"none of {_set(arguments)}"),
    "column_values_to_be_between": _of_values("is", "are", _between),
    "column_value_lengths_to_be_between": _of_values("has", "have", lambda values: f"{_between(values)} characters"),
    "column_values_to_match_regex": _of_values("matches", "match", lambda values: f"the pattern {values.get('regex')}"),
    "column_values_to_be_of_type": _of_values("is", "are", lambda values: f"of type {values.get('type_')}"),
    "column_values_to_be_increasing": lambda _: "values never fall",
    "column_values_to_be_decreasing": lambda _: "values never rise",
    "column_mean_to_be_between": _of_statistic("the mean"),
    "column_median_to_be_between": _of_statistic("the median"),
    "column_min_to_be_between": _of_statistic("the least value"),
    "column_max_to_be_between": _of_statistic("the greatest value"),
    "column_sum_to_be_between": _of_statistic("the sum"),
    "column_stdev_to_be_between": _of_statistic("the standard deviation"),
    "column_unique_value_count_to_be_between": _of_statistic("the number of different values"),
    "column_kl_divergence_to_be_less_than": lambda arguments: (
        f"values are spread as in the champion's data (divergence at most {show(arguments.get('threshold'))})"
    ),
}
"""What each expectation says, from its arguments; others are shown by their names."""
