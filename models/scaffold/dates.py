"""Forms of the dates that people write in words or in their country's order."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from models.inputs.types import as_text
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


def date_forms(table: pa.Table) -> dict[str, str]:
    """Return the form of each column of texts that all are dates in one form alone, such as `%b %d %Y`, by name.

    Where no value says whether the day or the month comes first, there are two forms, and the column is left out.
    """
    fitting = {name: forms_of(table.column(name)) for name in _columns_of_dates(table)}
    return {name: forms[0] for name, forms in fitting.items() if len(forms) == 1}


def forms_of(column: pa.ChunkedArray) -> list[str]:
    """Return the forms in which all texts of a column are dates.

    Cost: linear; each different text is parsed once for each form.
    """
    values = {text.strip() for text in as_text(column).drop_null().unique().to_pylist()} - {""}
    return [form for form in _FORMS if values and all(_is_date(text, form) for text in values)]


def _columns_of_dates(table: pa.Table) -> list[str]:
    return [name for name, form in text_forms(table).items() if form.kind == "dates" and not form.num_others]


def _is_date(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True
