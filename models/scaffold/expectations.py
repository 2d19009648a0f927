"""The expectations that a first spec proposes: what was seen, with slack, for the columns where a fault costs most.

Every input gets up to two: its missing values, and its range or its categories. Of a wide table only `MOST_LINES` are
proposed, for the columns that say most about the target, since a fault there changes predictions most, and nobody reads
a hundred lines. Built-in checks cover the rest: columns that exist, the target, and drift against the champion's data.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.inputs.types import as_text, is_number, is_text

MOST_LINES = 30
_MAX_LISTED = 20
_SLACK = 0.5
_NULLS_MORE = 0.05
_PARTS = 10
_LOOKED_AT = 20_000
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_ -]*[A-Za-z0-9_]|[A-Za-z]")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def expectation_lines(table: pa.Table, columns: list[str], target: str, num_rows: int) -> Iterator[str]:
    """Yield the block `expectations` for some input columns of a table, of which there are `num_rows` rows."""
    lines = {name: list(_of_column(name, table.column(name))) for name in columns}
    chosen = _most_telling(table, lines, target)
    yield "  # What was seen, with some slack. A warning stops no loop; `reject` does: use it where you are sure."
    if len(chosen) < len(columns):
        yield f"  # Of {len(columns)} columns only the {len(chosen)} that say most about {yaml_text(target)} have some."
    yield "  expectations:"
    yield _expectation("table_row_count_to_be_between", {"min_value": max(10, num_rows // 2)}, "reject")
    for name in columns:
        if name in chosen:
            yield from lines[name]


def yaml_value(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(yaml_value(element) for element in value)}]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return yaml_text(value) if isinstance(value, str) else json.dumps(value)


def yaml_text(text: str) -> str:
    """Return the text unquoted if YAML reads it back unchanged, else quoted, with what cannot be seen as escapes.

    JSON leaves U+007F to U+009F as they are, which no YAML may hold.
    """
    if _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS:
        return text
    return "".join(map(_escaped, json.dumps(text, ensure_ascii=False)))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    point = ord(character)
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"


def _most_telling(table: pa.Table, lines: dict[str, list[str]], target: str) -> set[str]:
    """Return the columns that keep their lines: those that say most about the target, as many as `MOST_LINES` hold."""
    if sum(map(len, lines.values())) < MOST_LINES:
        return set(lines)
    rows = table.slice(0, _LOOKED_AT)
    ranks = _ranks(rows.column(target))
    ordered = sorted(lines, key=lambda name: -_explained(rows.column(name), ranks))
    chosen: set[str] = set()
    num_left = MOST_LINES - 1
    for name in ordered:
        if len(lines[name]) <= num_left:
            chosen.add(name)
            num_left -= len(lines[name])
    return chosen


def _ranks(column: pa.ChunkedArray) -> np.ndarray:
    """Return the values as numbers from 0 to 1: ranks of numbers, of other values those of their frequency."""
    codes = as_text(column).combine_chunks().dictionary_encode() if not is_number(column.type) else None
    if codes is None:
        values = pc.fill_null(column.cast(pa.float64(), safe=False), float("nan")).to_numpy()
    else:
        values = pc.fill_null(codes.indices, -1).to_numpy().astype(np.float64)
    _, inverse = np.unique(values, return_inverse=True)
    ranks: np.ndarray = inverse / max(1, inverse.max(initial=0))
    return ranks


def _explained(column: pa.ChunkedArray, target: np.ndarray) -> float:
    """Return the share of the target's variance between the parts of a column's values: 0 to 1, for an order alone."""
    if pa.types.is_nested(column.type):
        return 0.0
    ranks = _ranks(column)
    parts = np.minimum((ranks * _PARTS).astype(np.int64), _PARTS - 1)
    if not is_number(column.type) and len(np.unique(ranks)) <= _MAX_LISTED:
        parts = np.unique(ranks, return_inverse=True)[1]
    counts = np.bincount(parts)
    means = np.bincount(parts, target) / np.maximum(counts, 1)
    whole = target.var()
    return float((counts * (means - target.mean()) ** 2).sum() / len(target) / whole) if whole > 0 else 0.0


def _of_column(name: str, column: pa.ChunkedArray) -> Iterator[str]:
    share = 1 - column.null_count / len(column)
    present = 1.0 if share == 1 else max(0.0, math.floor((share - _NULLS_MORE) * 100) / 100)
    if present > 0:
        arguments: dict[str, Any] = {"column": name}
        yield _expectation("column_values_to_not_be_null", arguments | ({"mostly": present} if share < 1 else {}))
    yield from _range_or_categories(name, column)


def _range_or_categories(name: str, column: pa.ChunkedArray) -> Iterator[str]:
    if is_number(column.type):
        low, high = _range(column.cast(pa.float64(), safe=False))
        yield _expectation("column_values_to_be_between", {"column": name, "min_value": low, "max_value": high})
    elif is_text(column.type):
        values = sorted(text for text in pc.unique(as_text(column)).to_pylist() if text is not None)
        if len(values) <= _MAX_LISTED:
            yield _expectation("column_values_to_be_in_set", {"column": name, "value_set": values})


def _range(column: pa.ChunkedArray) -> tuple[float, float]:
    extent = pc.min_max(column.filter(pc.is_finite(column)))
    low, high = extent["min"].as_py() or 0.0, extent["max"].as_py() or 0.0
    span = high - low or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span) - 1)
    low_end = round(math.floor((low - span * _SLACK) / step) * step, 12)
    high_end = round(math.ceil((high + span * _SLACK) / step) * step, 12)
    return (
        max(low_end, 0.0) if low >= 0 else low_end
    ), high_end  # columns without negative values get no negative limit


def _expectation(name: str, arguments: dict[str, Any], severity: str = "warn") -> str:
    settings = ", ".join(f"{key}: {yaml_value(value)}" for key, value in arguments.items())
    return f"    - {{expect: {name}, severity: {severity}, arguments: {{{settings}}}}}"
