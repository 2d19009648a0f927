"""Dates that people write in words or in their country's order, and the source that reads them as dates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from models.inputs.types import as_text
from models.scaffold.text_forms import text_forms

FILE, SOURCE = "data.py", "./data.py:load"
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
_FORMATS = tuple(day + clock for clock in _CLOCKS for day in _DAYS)
LOADER = '''\
"""The rows of {path}, in which texts are read as dates."""

from datetime import datetime

import pyarrow as pa

FORMATS = {formats}


def load(project, read_source):
    """Return the rows; a text that has not the form of its column is an error."""
    table = read_source(project / {path!r}{rules})
    for name, form in FORMATS.items():
        texts = [(text or "").strip() for text in table.column(name).to_pylist()]
        dates = [datetime.strptime(text, form) if text else None for text in texts]
        table = table.set_column(table.column_names.index(name), name, pa.array(dates, pa.timestamp("us")))
    return table
'''


def date_formats(table: pa.Table) -> dict[str, str]:
    """Return the form of each column of texts that all are dates in one form alone, such as `%b %d %Y`, by name.

    Where no value says whether the day or the month comes first, there are two forms, and the column is left out.
    """
    fitting = {name: formats_of(table.column(name)) for name in _columns_of_dates(table)}
    return {name: forms[0] for name, forms in fitting.items() if len(forms) == 1}


def formats_of(column: pa.ChunkedArray) -> list[str]:
    """Return the forms in which all texts of a column are dates.

    Cost: linear; each different text is parsed once for each form.
    """
    values = {text.strip() for text in as_text(column).drop_null().unique().to_pylist()} - {""}
    return [form for form in _FORMATS if values and all(_is_date(text, form) for text in values)]


def with_dates(table: pa.Table, formats: Mapping[str, str]) -> pa.Table:
    """Return a table in which columns of texts are dates, as the written source gives them."""
    for name, form in formats.items():
        texts = [(text or "").strip() for text in as_text(table.column(name)).to_pylist()]
        dates = [datetime.strptime(text, form) if text else None for text in texts]
        table = table.set_column(table.column_names.index(name), name, pa.array(dates, pa.timestamp("us")))
    return table


def loader(path: str, formats: Mapping[str, str], codes: Sequence[str] = ()) -> str:
    """Return the file of a source that reads a table, `codes` as texts, and makes dates of its columns of texts."""
    return LOADER.format(path=path, formats=dict(formats), rules=f", na_is_text={[*codes]}" if codes else "")


def _columns_of_dates(table: pa.Table) -> list[str]:
    return [name for name, form in text_forms(table).items() if form.kind == "dates" and not form.num_others]


def _is_date(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True
