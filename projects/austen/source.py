"""Jane Austen's six novels in the order in which they were published, one row a printed line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

PACKAGE = "debian:r-cran-janeaustenr!usr/lib/R/site-library/janeaustenr/data"
LINES = f"{PACKAGE}/Rdata.rdb#sha256=8fb5198960d0da724b1562f96e4221e5c1b41ff455000280b02c55980c3d8f21"
PLACES = f"{PACKAGE}/Rdata.rdx#sha256=cab8cbe4ce965d3b42b35c03383bafccc0eb78151f70e4748ead45270470c22f"

NOVELS = {
    "sensesensibility": "Sense and Sensibility",
    "prideprejudice": "Pride and Prejudice",
    "mansfieldpark": "Mansfield Park",
    "emma": "Emma",
    "northangerabbey": "Northanger Abbey",
    "persuasion": "Persuasion",
}
CHAPTER = re.compile(r"chapter [ivxlc\d]+\.?", re.IGNORECASE)


def load(fetch: Callable[[str], Path], read_r: Callable[[Path], dict[str, Any]]) -> pd.DataFrame:
    """`book`, `chapter` (from 1 through the whole book; 0 before the first), `line` of the book, `text`."""
    fetch(PLACES)  # comes to lie beside the file of lines, where it is looked for
    objects = read_r(fetch(LINES))
    return pd.concat([_novel(title, list(objects[name])) for name, title in NOVELS.items()], ignore_index=True)


def _novel(title: str, lines: list[str]) -> pd.DataFrame:
    text = [line.rstrip() for line in lines]
    return pd.DataFrame(
        {"book": title, "chapter": list(_chapters(text)), "line": range(1, len(text) + 1), "text": text}
    )


def _chapters(lines: list[str]) -> Iterator[int]:
    chapter = 0
    for line in lines:
        chapter += CHAPTER.fullmatch(line.strip()) is not None
        yield chapter
