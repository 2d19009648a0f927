"""Ids by name in any case style and by behaviour; dates of birth are no times of rows."""

import numpy as np
import pyarrow as pa
import pytest

from models.scaffold.roles import BEHAVES, NAMED, id_reason, times_of_rows, words_of

GROWS, SHUFFLED = np.arange(1, 101), np.random.default_rng(0).permutation(100)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("PassengerId", ["passenger", "id"]),
        ("customerID", ["customer", "id"]),
        ("HTTPKey", ["http", "key"]),
        ("case_number", ["case", "number"]),
        ("Unnamed: 0", ["unnamed", "0"]),
    ],
)
def test_names_in_any_case_style_have_words(name, words):
    assert words_of(name) == words


def reason(name, values):
    column = pa.chunked_array([pa.array(values)])
    return id_reason(name, column, len(set(values)))


@pytest.mark.parametrize("name", ["PassengerId", "customerID", "LoanID", "userid", "orderNo", "case_number", "SKU"])
def test_an_id_is_known_by_its_name_in_any_order_of_the_file(name):
    assert reason(name, SHUFFLED) == NAMED


@pytest.mark.parametrize("values", [GROWS, GROWS[::-1], np.cumsum(SHUFFLED + 1)])
def test_a_whole_number_that_only_grows_or_falls_is_an_id(values):
    assert reason("n", values) == BEHAVES


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n", SHUFFLED),  # different values, in no order
        ("n", np.sort(SHUFFLED // 2)),  # in order, but equal ones
        ("n", GROWS / 2),  # no whole numbers
        ("year", GROWS),
        ("paid", SHUFFLED),  # ends as an id does
        ("PassengerId", GROWS[:40]),  # too few rows to say so
    ],
)
def test_what_is_no_id(name, values):
    assert reason(name, values) is None


def test_dates_of_birth_are_no_times_of_rows_and_those_in_order_come_first():
    days = np.datetime64("2024-01-01") + np.arange(100)
    dates = dict.fromkeys(["birth_date", "DateOfBirth", "dob", "hire_date", "due_date", "expiry", "valid"], days)
    table = pa.table({"seen": days[SHUFFLED], **dates})
    assert times_of_rows(table) == ["valid", "seen"]
