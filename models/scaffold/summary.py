"""What a first spec takes each column for, and why, with examples of its values: for a page that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from models.frozen_model import FrozenModel

if TYPE_CHECKING:
    import pyarrow as pa

MOST_COLUMNS = 200
MOST_EXAMPLES = 5
MOST_CHARACTERS = 40


class ColumnSummary(FrozenModel):
    """A column of a new source: `taken_for` says its role or kind and why, `examples` are values of its first rows."""

    name: str
    type: str
    taken_for: str
    examples: list[str]


def column_summaries(table: pa.Table, spec_text: str) -> list[ColumnSummary]:
    """Return a summary of each column, of the first `MOST_COLUMNS`.

    Args:
        table: Rows of the source.
        spec_text: What `draft` wrote for them: roles and kinds are read from its keys, reasons from its comments.
    """
    from ruamel.yaml import YAML

    from models.inference.forms import with_forms
    from models.scaffold.columns import reading_of  # numpy and pyarrow: a server of pages knows the class alone
    from models.sources.delimiter import forms_by_column

    data = YAML(typ="rt").load(spec_text)["data"]
    table = with_forms(table, forms_by_column(data.get("dates") or {}, data.get("decimal_commas") or ()))
    features = data.get("features") or {}
    kinds, dropped = features.get("kinds") or {}, features.get("drop") or []
    picture = (data.get("image") or {}).get("column")
    targets = data["target"] if isinstance(data.get("target"), list) else [data.get("target")]
    reasons = {name: _comment_on(dropped, place) for place, name in enumerate(dropped)}
    summaries = []
    for name in table.column_names[:MOST_COLUMNS]:
        column = table.column(name)
        if name in targets:
            taken_for = "the target"
        elif picture:
            taken_for = "the picture" if name == picture else "no input: the model sees the picture alone"
        elif name in reasons:
            taken_for = f"left out: {reasons[name]}" if reasons[name] else "left out"
        else:
            taken_for = reading_of(column, kinds.get(name, ""))
        if name == data.get("id"):
            taken_for = "names the rows, never an input"
        examples = [_as_text(value) for value in column.slice(0, MOST_EXAMPLES).to_pylist()]
        summaries.append(ColumnSummary(name=name, type=str(column.type), taken_for=taken_for, examples=examples))
    return summaries


def _comment_on(sequence: Any, place: int) -> str:
    """Return the comment behind an element of a list."""
    tokens = getattr(sequence, "ca", None) and sequence.ca.items.get(place)
    return tokens[0].value.splitlines()[0].lstrip("# ").strip() if tokens and tokens[0] else ""


def _as_text(value: Any) -> str:
    text = f"{len(value)} bytes" if isinstance(value, bytes) else "" if value is None else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"
