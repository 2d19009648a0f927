"""Workbooks that openpyxl, xlwt and odfpy wrote become rows; which sheet is meant is asked."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

import pytest

from models.errors import DataError
from models.sources.read import read_source

FILES = Path(__file__).with_name("files")
ROWS = [{"x": 1, "y": "yes"}, {"x": 2, "y": "no"}]


@pytest.mark.parametrize("name", ["old.xls", "open.ods", "two sheets.xlsx#May 2026"])
def test_a_sheet_is_its_rows(name: str) -> None:
    assert read_source(FILES / name).to_pylist() == ROWS


def test_cells_keep_their_types_and_hidden_and_empty_sheets_are_none() -> None:
    table = read_source(FILES / "trips.xlsx")
    assert table.slice(0, 2).to_pylist() == [
        {"when": datetime(2026, 5, 1, 8, 30), "km": 3, "fare": 12.5, "code": "007", "paid": True, "late, %": "0.1"},
        {"when": datetime(2026, 5, 2), "km": 4, "fare": None, "code": "x1", "paid": False, "late, %": "n/a"},
    ]
    assert table.column("km").null_count == 1


def test_a_sheet_is_named_where_there_are_several() -> None:
    with pytest.raises(DataError, match=r"several sheets, 'May 2026', .*: name one, two sheets\.xlsx#May 2026"):
        read_source(FILES / "two sheets.xlsx")
    assert read_source(FILES / "two sheets.xlsx#O'Hara & co").to_pylist() == [{"x": 3, "y": "no"}]
    with pytest.raises(DataError, match=r"has no sheet 'July', only 'May 2026'"):
        read_source(FILES / "two sheets.xlsx#July")


def test_half_a_workbook_is_an_error_with_the_cure(tmp_path: Path) -> None:
    shutil.copy(FILES / "trips.xlsx", tmp_path)
    content = (tmp_path / "trips.xlsx").read_bytes()
    (tmp_path / "trips.xlsx").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"trips\.xlsx: not readable as a workbook .*save it again as \.xlsx"):
        read_source(tmp_path / "trips.xlsx")
