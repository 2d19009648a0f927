"""Sheets of Excel and OpenDocument as tables: a header, then rows; the first row that is not empty is the header."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from models.errors import DataError, one_line
from models.sources.packed import split_part


def read_excel(path: Path) -> pa.Table:
    """Return the only sheet of a workbook, or the one behind the `#`: `trips.xlsx#May 2026`.

    Whole numbers are integers, an empty cell or a formula's error is missing, and a column of several types is text.

    Raises:
        DataError: It is no workbook, is locked by a password, or has several sheets or no such one.
    """
    from python_calamine import CalamineError, CalamineWorkbook

    file, wanted = split_part(path)
    try:
        with CalamineWorkbook.from_path(str(file)) as workbook:
            rows = workbook.get_sheet_by_name(_sheet_of(workbook, file, wanted)).to_python()
    except (CalamineError, OSError) as error:
        cure = "save it again as .xlsx, without a password"
        raise DataError(f"{file}: not readable as a workbook ({one_line(error, 150)}): {cure}") from error
    lines = [row for row in rows if any(cell != "" for cell in row)]
    if not lines:
        raise DataError(f"{path}: the sheet is empty, expected a header and rows: name another, or fill it")
    header, *body = lines
    names = [_text(cell) for cell in header]
    columns = [_column([row[place] for row in body]) for place in range(len(names))]
    named = [place for place, name in enumerate(names) if name or columns[place].null_count < len(body)]
    return pa.Table.from_arrays([columns[place] for place in named], [names[place] for place in named])


def _sheet_of(workbook: Any, file: Path, wanted: str) -> str:
    """Return the name of the sheet: the wanted one, or the only one that is visible and not empty."""
    from python_calamine import SheetTypeEnum, SheetVisibleEnum

    tables = [sheet for sheet in workbook.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
    names = [sheet.name for sheet in tables]
    if wanted:
        if wanted not in names:
            raise DataError(
                f"{file}: has no sheet {wanted!r}, only {', '.join(map(repr, names))}: correct the name behind the #"
            )
        return wanted
    visible = [sheet.name for sheet in tables if sheet.visible == SheetVisibleEnum.Visible]
    filled = [name for name in visible if workbook.get_sheet_by_name(name).height] if len(visible) > 1 else visible
    if len(filled) > 1:
        raise DataError(
            f"{file}: has several sheets, {', '.join(map(repr, filled))}: name one, {file.name}#{filled[0]}"
        )
    if not filled:
        raise DataError(f"{file}: has no sheet with cells, expected a header and rows: is it the right file?")
    return str(filled[0])


def _column(cells: list[Any]) -> pa.Array:
    """Return the cells below a name as one column."""
    values = [None if cell == "" else cell for cell in cells]
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {int, float}:
        is_whole = all(value is None or (float(value).is_integer() and abs(value) < 2**53) for value in values)
        return pa.array([value if value is None else int(value) for value in values] if is_whole else values)
    if kinds <= {date, datetime}:
        moments = [
            value if value is None or isinstance(value, datetime) else datetime(value.year, value.month, value.day)
            for value in values
        ]
        return pa.array(moments, pa.timestamp("us"))
    if len(kinds) == 1 and kinds <= {bool, time, timedelta}:
        return pa.array(values)
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(cell: Any) -> str:
    """Return a cell as text; a whole number without its point."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
