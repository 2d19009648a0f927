"""The rule: a number or a date that is written as text is told by `new`, and is never dropped as "an id".

Labels that differ by case or space are told too, by `new` and by `ingest`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from models.project_spec.blocks import Data
from models.scaffold.table import guess_spec
from models.sources.read import read_source
from models.validation.alike_classes import alike_classes

ROWS = 60
FIRST = datetime(2023, 1, 1, 8, 15)
Write = Callable[[int], str]


def _when(row: int) -> datetime:
    return FIRST + timedelta(hours=31 * row)


FORMS: dict[str, Write] = {
    "decimal comma": lambda row: f"{40000 + 37.25 * row:.2f}".replace(".", ","),
    "currency": lambda row: f"€{40000 + 37.25 * row:.2f}",
    "currency behind": lambda row: f"{40000 + 37.25 * row:.2f} €",
    "parentheses for minus": lambda row: f"({1000 + row:,})" if row % 3 == 0 else f"{1000 + row:,}",
    "no-break space between thousands": lambda row: f"{40000 + row:,}".replace(",", "\u00a0"),
    "apostrophe between thousands": lambda row: f"{40000 + row:,}".replace(",", "'"),
    "minus sign of typography": lambda row: "\u2212" * (row % 2) + str(row + 0.5),
    "unit": lambda row: f"{row / 10} kg",
    "per cent": lambda row: f"{row / 10}%",
    "mark for missing": lambda row: "?" if row % 5 == 0 else str(row),
    "am and pm": lambda row: _when(row).strftime("%m/%d/%Y %I:%M %p"),
    "month's name": lambda row: _when(row).strftime("%b %d, %Y"),
    "month's name without zeros": lambda row: f"{_when(row):%b} {_when(row).day} {_when(row).year}",
    "month's name between": lambda row: _when(row).strftime("%d-%b-%Y"),
    "name of a zone": lambda row: _when(row).strftime("%Y-%m-%d %H:%M:%S UTC"),
    "several zones": lambda row: _when(row).isoformat() + ("+02:00" if row % 2 else ""),
    "points": lambda row: _when(row).strftime("%d.%m.%Y"),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("repeated", [1, 4], ids=["each once", "each four times"])
def test_a_form_is_told_and_is_no_id(name: str, repeated: int, tmp_path: Path) -> None:
    lines = [f'"{FORMS[name](row // repeated)}",{row % 7},{row % 2}' for row in range(ROWS)]
    (tmp_path / "rows.csv").write_text("\n".join(["col,x,y", *lines]))
    text = guess_spec(tmp_path / "rows.csv", "a", "y")
    spec = YAML(typ="safe").load(text)
    told = [line for line in text.splitlines() if line.startswith("# Column col is text")]
    read = [*spec["data"].get("dates", {}), *spec["data"].get("decimal_commas", ())]
    assert [len(told), *read] in ([1], [0, "col"])
    assert all("look like numbers, such as" in line or "look like dates, such as" in line for line in told)
    assert "an id" not in text
    assert spec["data"]["features"].get("kinds", {}).get("col") != "text"


@pytest.mark.parametrize("labels", [["Yes", "yes", "No"], ["Yes", " Yes", "No"], ["New  York", "new york", "Oslo"]])
def test_labels_that_differ_by_case_or_space_are_told(labels: list[str], tmp_path: Path) -> None:
    lines = [f"{row % 7},{labels[row % 3]}" for row in range(ROWS)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y", *lines]))
    words = "target 'y': 3 classes, of which some differ by case or spaces alone"
    assert f"# T{words[1:]}" in guess_spec(tmp_path / "rows.csv", "a", "y"), "new"
    (message,) = alike_classes(read_source(tmp_path / "rows.csv"), Data(source="rows.csv", target="y"))
    assert message.startswith(words), "ingest"
