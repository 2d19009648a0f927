"""Makes a Jupyter notebook of a tutorial: its text and its Python, a cell for each block."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorials" / "notebook.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
"""A block of Python, or the output of the block before it, which the reader of a notebook sees when it runs."""


def cells(page: str) -> list[tuple[str, str]]:
    """Return the cells of a page in order: `markdown` or `code`, and the source."""
    found, end = [], 0
    for block in BLOCK.finditer(page):
        found.append(("markdown", page[end : block.start()].strip()))
        if block[1] == "python":
            found.append(("code", block[2].rstrip()))
        end = block.end()
    return [(kind, source) for kind, source in found if source]


def outputs(page: str) -> list[list[str]]:
    """Return the lines that the page shows below each block of Python; none for a block without output."""
    shown: list[list[str]] = []
    for block in BLOCK.finditer(page):
        if block[1] == "python":
            shown.append([])
        else:
            shown[-1] += block[2].splitlines()
    return shown


def notebook() -> str:
    """Return the notebook of the tutorial as JSON. Format: nbformat 4.4."""
    made = [
        {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)}
        | ({"execution_count": None, "outputs": []} if kind == "code" else {})
        for kind, source in cells(PAGE.read_text())
    ]
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    content = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
