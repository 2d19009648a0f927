"""Numbers and dates as people write them are recognised; codes, names and addresses are not."""

import pyarrow as pa
import pytest

from models.scaffold.text_forms import is_number_name, is_useless_as_text, text_form, text_forms

NUMBERS = [
    "46748,77", "€46748.77", "46748.77 €", "$1,234.50", "1.234,50", "(1,234)", "46\u00a0748,77", "1\u202f234",
    "\u22125.20", "5 kg", "5kg", "12.5 %", "20°C", "30 km/h", "USD 12", "3'000", "1 234", "-.5", "1e-5 m",
]  # fmt: skip
DATES = [
    "01/31/2023 08:15 AM", "Jan 31, 2023", "31-Jan-2023", "2023-01-01 08:15:00 UTC", "2023-01-01T08:15:00+02:00",
    "2023-01-01 08:15:00 CEST", "Jan 1 2000", "1st January 2020", "Tue, 31 Jan 2023 08:15:00 GMT", "2023/01/31",
    "31.12.2023", "31. Dec. 2023 8:15pm", "December 2023", "2023-01", "Q1 2023", "2023-W05",
]  # fmt: skip
NEITHER = [
    "Oslo", "3B", "12A", "12 Main", "ABC123", "KLM 123", "a@b.c", "1.2.3", "192.168.0.1", "+49 170 1234567", "may",
    "A-12-2023", "XL", "<5", "10-20", "2 of 3",
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text"), [("numbers", text) for text in NUMBERS] + [("dates", text) for text in DATES]
)
def test_a_form_is_recognised(kind: str, text: str) -> None:
    form = text_form(pa.chunked_array([[text, f" {text} ", None, ""]]))
    assert form is not None
    assert (form.kind, form.num_others) == (kind, 0)


@pytest.mark.parametrize("text", NEITHER)
def test_other_texts_have_no_form(text: str) -> None:
    assert text_form(pa.chunked_array([[text] * 3])) is None


def test_some_mistakes_or_a_mark_for_missing_change_nothing() -> None:
    mixed = pa.chunked_array([["1 kg"] * 18 + ["about 3", "many"]])
    assert text_form(mixed) == ("numbers", "1 kg", 2, "about 3")
    marked = pa.chunked_array([["12"] * 8 + ["?"] * 2])
    assert text_form(marked) == ("numbers", "12", 2, "?")
    assert text_form(pa.chunked_array([["1", "2", "3+"] * 9])) is None, "3+ is a value, not a mark"
    assert text_form(pa.chunked_array([["?"] * 9 + ["1"]])) is None


def test_numbers_and_times_have_no_form_and_a_dictionary_has_that_of_its_values() -> None:
    table = pa.table({"n": [1], "d": pa.array(["5 kg"]).dictionary_encode(), "t": pa.array([None], pa.string())})
    assert list(text_forms(table)) == ["d"]


def test_what_says_nothing_as_a_category() -> None:
    prices = pa.chunked_array([[f"€{number}.50" for number in range(100)]])
    assert is_useless_as_text(prices, 100)
    assert not is_useless_as_text(pa.chunked_array([["€1", "€2"] * 50]), 2)


def test_a_name_that_is_a_number() -> None:
    assert all(map(is_number_name, ["12", "-1.5", " 3,5 "]))
    assert not any(map(is_number_name, ["5 kg", "x1", "2023-01", ""]))
