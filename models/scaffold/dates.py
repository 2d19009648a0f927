"""Forms of the dates that people write in words, in their country's order, or as whole numbers such as 20240531."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from models.inputs.types import as_text, is_number
from models.scaffold.roles import is_ascending, is_named_as_id, is_named_as_time
from models.scaffold.text_forms import text_forms

_NUMERIC = tuple(
    f"{first}{mark}{second}{mark}{year}"
    for year in ("%Y", "%y")
    for mark in "./-"
    for first, second in (("%d", "%m"), ("%m", "%d"))
)
_CLOCKS = (
    "",
    *(f"{comma} {clock}" for comma in ("", ",") for clock in ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p")),
)
_DAYS = (
    *(f"{month} %d{comma} %Y" for month in ("%b", "%B") for comma in ("", ",")),
    *(f"%d{mark}{month}{mark}%Y" for month in ("%b", "%B") for mark in " -"),
    "%Y/%m/%d",
    "%Y.%m.%d",
    *_NUMERIC,
)
_FORMS = tuple(day + clock for clock in _CLOCKS for day in _DAYS)
_DIGITS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
"""The form of a date as a whole number, by its digits."""
_YEARS = ("1900", "2101")
"""A number of a year from here on, and before the latter, may be a date."""


def date_forms(table: pa.Table) -> dict[str, str]:
    """Return the form of each column of texts that all are dates in one form alone, such as `%b %d %Y`, by name.

    Where no value says whether the day or the month comes first, there are two forms, and the column is left out.
    Whole numbers that all are dates have one where the column's name or the order of the rows says so.
    """
    fitting = {name: forms_of(table.column(name)) for name in _columns_of_dates(table)}
    fitting |= {name: [form] for name in table.column_names if (form := _form_of_numbers(table.column(name), name))}
    return {name: forms[0] for name, forms in fitting.items() if len(forms) == 1}


def forms_of(column: pa.ChunkedArray) -> list[str]:
    """Return the forms in which all texts of a column are dates.

    Cost: linear; each different text is parsed once for each form.
    """
    values = {text.strip() for text in as_text(column).drop_null().unique().to_pylist()} - {""}
    return [form for form in _FORMS if values and all(_is_date(text, form) for text in values)]


def _columns_of_dates(table: pa.Table) -> list[str]:
    return [name for name, form in text_forms(table).items() if form.kind == "dates" and not form.num_others]


def _form_of_numbers(column: pa.ChunkedArray, name: str) -> str | None:
    """Return the form of a column of whole numbers of which each is a date, and that is named or ordered as one."""
    present = column.drop_null()
    if not is_number(column.type) or not len(present):
        return None
    low, high = (f"{value:.0f}" for value in pc.min_max(present).as_py().values())
    form = _DIGITS.get(len(low))
    if form is None or len(low) != len(high) or not _YEARS[0] <= low[:4] <= high[:4] < _YEARS[1]:
        return None
    is_meant = is_named_as_time(name) or (is_ascending(present) and not is_named_as_id(name))
    if low[:6] == high[:6] or not is_meant:  # within a month rows may be numbered so
        return None
    are_dates = all(_is_date(str(value).removesuffix(".0"), form) for value in pc.unique(present).to_pylist())
    return form if are_dates else None


def _is_date(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True
