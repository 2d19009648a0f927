"""Numbers and dates that people write as text: recognised by their form, so that a first spec can say so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from models.inputs.categorical.rows import MIN_ROWS_OF_IDENTITY
from models.inputs.types import as_text, is_text
from models.ngrams.columns import holds_texts
from models.sources.whole_numbers import are_codes

MOST_LOOK_LIKE = 0.9
"""A column of texts is said to hold numbers or dates if this share of them looks so: the others may be mistakes."""
LEAST_LOOK_LIKE = 0.5
"""This share is enough if the others are a few words without a digit, which stand for missing: `?`, `unknown`."""
_MOST_MARKS = 3
_SPACE = "[ \t\u00a0\u2009\u202f]"
_SIGN = "[-+\u2212\u2013]?"
_DIGITS = rf"(?:[0-9]{{1,3}}(?:(?:[.,'’]|{_SPACE})[0-9]{{3}})+(?:[.,][0-9]+)?|[0-9]*[.,]?[0-9]+)(?:[eE][-+]?[0-9]+)?"
_CURRENCY = "(?:[$€£¥₹]|EUR|USD|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|CAD|AUD|BRL)"
_UNIT = (
    "(?:%|‰|°[CF]?|kg|g|mg|t|lbs?|oz|km|m|cm|mm|mi|ft|in|m[²³]|l|ml|h|hrs?|min|s|sec|ms|days?|years?|yrs?|k|M|mio|bn|"
    "[kKMGT]B|k?Wh?|[kMG]?Hz|km/h|mph|k?cal|px)"
)
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"[0-9]{1,2}(?:st|nd|rd|th|\.)?"
_CLOCK = (
    r"(?:(?:t|,?\s+)[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?:\s?[ap]\.?m\.?)?"
    r"(?:\s?(?:z|utc|gmt|[a-z]{2,4}t|[-+][0-9]{2}:?[0-9]{2}))?)?"
)
_DATE = "|".join(
    (
        r"[0-9]{4}[-./][0-9]{1,2}[-./][0-9]{1,2}|[0-9]{1,2}[-./][0-9]{1,2}[-./](?:[0-9]{4}|[0-9]{2})",
        rf"{_DAY}[-./ ]*{_MONTH}[-./, ]+[0-9]{{2,4}}",
        rf"{_MONTH}[-./ ]+{_DAY}[-./, ]+[0-9]{{2,4}}",
        rf"[0-9]{{4}}[-./ ]{_MONTH}[-./ ]{_DAY}",
        rf"{_MONTH}[-./, ]+[0-9]{{4}}",
        r"[0-9]{4}[-/][0-9]{2}",
        r"[0-9]{4}[- ]?(?:q[1-4]|w[0-9]{2})|q[1-4][-/ ]?[0-9]{4}",
    )
)
_FORMS = {
    "numbers": (
        rf"^\s*\(?{_SIGN}{_SPACE}?(?:{_CURRENCY}{_SPACE}?)?{_SIGN}{_DIGITS}"
        rf"(?:{_SPACE}?(?:{_CURRENCY}|{_UNIT}))?\)?\s*$"
    ),
    "dates": rf"(?i)^\s*(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*[,.]?\s+)?(?:{_DATE}){_CLOCK}\s*$",
}
_PLAIN_NUMBER = re.compile(r"[-+]?[0-9]+([.,][0-9]+)*")


class TextForm(NamedTuple):
    """What the texts of a column look like, `numbers` or `dates`: one of them, how many do not, and one of those."""

    kind: str
    example: str
    num_others: int
    other: str


def text_form(column: pa.ChunkedArray) -> TextForm | None:
    """Return the form of a column of texts that look like numbers or dates; None for any other column, such as codes.

    Cost: linear; each different text is looked at once.
    """
    if not is_text(column.type):
        return None
    counts = as_text(column).drop_null().value_counts()
    texts, times = counts.field("values"), counts.field("counts")
    if are_codes(texts):
        return None
    for kind, pattern in _FORMS.items():
        fits = pc.match_substring_regex(texts, pattern)
        misfits = texts.filter(pc.invert(fits))
        num_fitting, num_texts = pc.sum(times.filter(fits)).as_py() or 0, pc.sum(times).as_py() or 0
        share = num_fitting / num_texts if num_texts else 0.0
        are_marks = len(misfits) <= _MOST_MARKS and not pc.any(pc.match_substring_regex(misfits, "[0-9]")).as_py()
        if share >= (LEAST_LOOK_LIKE if are_marks else MOST_LOOK_LIKE):
            misfit = misfits[0].as_py() if len(misfits) else ""
            return TextForm(kind, texts.filter(fits)[0].as_py(), num_texts - num_fitting, misfit)
    return None


def text_forms(table: pa.Table) -> Mapping[str, TextForm]:
    """Return the form of each column that has one, by name."""
    forms = {name: text_form(table.column(name)) for name in table.column_names}
    return {name: form for name, form in forms.items() if form is not None}


def is_useless_as_text(column: pa.ChunkedArray, num_values: int) -> bool:
    """Return True for numbers and dates as text that say nothing as categories: most rows have a value of their own.

    Nor are they sentences, although `Jan 31, 2023` has words.
    """
    is_mostly_unique = len(column) >= MIN_ROWS_OF_IDENTITY and 2 * num_values > len(column)
    return is_mostly_unique or holds_texts(as_text(column))


def is_number_name(name: str) -> bool:
    """Return True for a column whose name is a number, as of a file without a header."""
    return _PLAIN_NUMBER.fullmatch(name.strip()) is not None
