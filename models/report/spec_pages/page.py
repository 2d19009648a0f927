"""The pages of new data and of a spec's edits as HTML: the form, the first spec, the fields, the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.report import pages
from models.report.overview_page import FILTERS
from models.scaffold.edits import EditableKey
from models.scaffold.summary import MOST_COLUMNS, ColumnSummary

SUFFIXES = (
    *(".csv", ".tsv", ".parquet", ".pq", ".json", ".jsonl", ".ndjson", ".feather", ".arrow", ".xlsx", ".xlsm", ".xlsb"),
    *(".xls", ".ods", ".rda", ".rds", ".txt", ".gz", ".bz2", ".xz", ".zst", ".zip"),
)
"""What the browser offers in its list of files; the reader decides what it takes."""
COLUMN_KEYS = ("data.target", "data.id", "data.weight", "data.split.column", "data.features.columns",
               "data.features.drop", "data.features.kinds", "judge.slices")  # fmt: skip
"""Keys whose fields name columns."""
MOST_LINES = 12
"""Rows of a text field, at most."""


@dataclass(frozen=True)
class PageForm:
    """What each of these pages' forms has.

    Attributes:
        action: Its address.
        token: Its token.
        error: Why it came back; empty: it did not.
        logout: The token of the form that ends the session.
    """

    action: str
    token: str
    error: str = ""
    logout: str = ""


@dataclass(frozen=True)
class DraftedSpec:
    """A first spec of new data, which nobody has written yet.

    Attributes:
        source: The file or address.
        names: All columns.
        spec: Its text.
    """

    source: str
    name: str
    target: str
    names: Sequence[str]
    columns: Sequence[ColumnSummary]
    spec: str


@dataclass(frozen=True)
class SpecForm:
    """A spec with its editable keys.

    Attributes:
        text: The file.
        digest: Its SHA-256, by which a later write sees that it has changed.
        values: The texts of the fields by their keys.
        reasons: What is wrong with fields, by their keys.
        columns: Those of its data, as far as they are known without a look at it.
    """

    project: str
    path: str
    text: str
    digest: str
    keys: Sequence[EditableKey] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    columns: Sequence[str] = ()


def render_new(form: PageForm, most_bytes: int, values: Mapping[str, str]) -> str:
    """Return the page that takes a file or an address; `values` are the texts that a person has typed before."""
    return _render("new", form, most_bytes=most_bytes, values=values, suffixes=",".join(SUFFIXES))


def render_draft(form: PageForm, draft: DraftedSpec) -> str:
    """Return the page of new data: its columns, and the spec that would be written."""
    return _render("new_draft", form, draft=draft, most_columns=MOST_COLUMNS)


def render_spec(form: PageForm, spec: SpecForm) -> str:
    """Return the page of a spec with a field for each editable key."""
    return _render("spec", form, spec=spec, height=_height, column_keys=COLUMN_KEYS)


def render_difference(form: PageForm, spec: SpecForm, lines: Sequence[str]) -> str:
    """Return the page that asks whether a difference shall be written; its form carries the fields once more."""
    return _render("spec_difference", form, spec=spec, lines=lines)


def _height(text: str) -> int:
    return max(2, min(MOST_LINES, text.count("\n") + 2))


def _render(template: str, form: PageForm, **values: Any) -> str:
    path = f"overview/{template}.html.j2"
    return pages.render(path, filters=FILTERS, form=form, logout=form.logout, **values)
