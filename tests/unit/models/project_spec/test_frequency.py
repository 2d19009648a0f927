"""Frequencies of series: what a spec may say, and how it is written again."""

import pytest

from models.project_spec.frequency import parse_frequency
from models.project_spec.window import Window


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("hour", "hour"),
        (" 30 Minutes ", "30 minutes"),
        ("60 minutes", "hour"),
        ("90 seconds", "90 seconds"),
        ("7 days", "week"),
        ("weekday", "weekday"),
        ("3 months", "quarter"),
        ("24 months", "2 years"),
        ("1", "1"),
        ("0.25", "0.25"),
        ("rows", "rows"),
    ],
)
def test_a_frequency_is_written_in_its_largest_unit(text: str, again: str) -> None:
    assert parse_frequency(text).text == again
    assert parse_frequency(again) == parse_frequency(text)
    assert Window(length=3, frequency=text).frequency == again


@pytest.mark.parametrize("text", ["", "fortnight", "0", "-1", "0 days", "1e99", "nan"])
def test_what_names_no_frequency_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match='expected "hour", "30 minutes"'):
        parse_frequency(text)


@pytest.mark.parametrize("number", [1234567, 999_999_999_999_999, 0.125])
def test_a_number_keeps_its_digits_as_text(number: float) -> None:
    assert parse_frequency(parse_frequency(str(number)).text).num_units == number
