"""Classes that differ by case or spaces alone, mostly one class that was typed in several ways."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from models.inputs.types import as_text, is_text
from models.project_spec.blocks import Data
from models.readable import as_shown, no_text

_MOST_SHOWN = 4


def alike_classes(table: pa.Table, data: Data) -> list[str]:
    """Return a message for each target of texts in which classes differ by case or spaces alone.

    Cost: linear; each different text is looked at once.
    """
    names = [name for name in data.targets if name in table.column_names and is_text(table.schema.field(name).type)]
    messages = (_message(name, table.column(name), data) for name in names)
    return [message for message in messages if message]


def _message(name: str, column: pa.ChunkedArray, data: Data) -> str:
    classes = pc.unique(as_text(column)).drop_null().to_pylist()
    groups: dict[str, list[str]] = {}
    for text in classes:
        groups.setdefault(" ".join(text.casefold().split()), []).append(text)
    alike = max(groups.values(), key=len, default=[])
    if len(alike) < 2:
        return ""
    such_as = as_shown(f", such as {' and '.join(map(repr, alike[:_MOST_SHOWN]))}", data.show_rows, no_text)
    return (
        f"target {name!r}: {len(classes)} classes, of which some differ by case or spaces alone{such_as}: each is a "
        "class of its own; write them alike in the source"
    )
