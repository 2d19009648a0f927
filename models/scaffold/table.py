"""A first spec for a table without a spec: guessed settings, each with a comment that says why."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from models.data.clean import unanswered
from models.data.columns import as_text, is_number, is_text
from models.data.fit import MIN_ROWS_OF_IDENTITY
from models.data.header import no_such_column
from models.data.target import infer_task
from models.errors import UsageError
from models.project_spec.blocks import Data
from models.sources.read import read_source
from models.validation.expectations import TARGET_PRESENT

_TARGET_NAMES = ("target", "label", "class", "y", "outcome", "churn", "price")
_MAX_LISTED = 20
_MAX_SLICE = 10
_SLACK = 0.5
_NULLS_MORE = 0.05
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_ -]*[A-Za-z0-9_]|[A-Za-z]")
_LOOKS_LIKE = {
    "numbers": r"^\s*[-+]?[$€£]?\s?[0-9]{1,3}([., '][0-9]{3})*([.,][0-9]+)?\s?[%$€£]?\s*$",
    "dates": r"^\s*[0-9]{1,4}([-./])[0-9]{1,2}[-./][0-9]{1,4}([ T][0-9]{1,2}:[0-9]{2}(:[0-9]{2})?)?\s*$",
}
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def guess_spec(path: Path, name: str, target: str | None = None, source: str | None = None) -> str:
    """Return the text of a valid `project.yaml` for a file, with comments.

    Args:
        path: A CSV or Parquet file, or a folder of Parquet.
        name: The project's name.
        target: The column to predict, or several separated by commas; default: `guess_target`.
        source: The value of `data.source`; default: the path.

    Raises:
        DataError: The file cannot be read, or the target is of a type that cannot be predicted.
        UsageError: The target does not exist, or has no values to learn.
    """
    table = read_source(path)
    target = target or guess_target(table)
    targets = _target_names(target, table.column_names)
    data = Data(source=source or str(path), target=targets if len(targets) > 1 else targets[0])
    known = table.filter(pc.invert(pa.array(unanswered(table, data))))
    if not known.num_rows:
        raise UsageError(f"--target: {target!r} has no value at all in {table.num_rows} rows: name another column")
    task = infer_task(known.select(data.targets), data)
    for column in targets if task != "regression" else ():
        if _num_values(known.column(column)) < 2:
            raise UsageError(f"--target: every row has the same {column!r}: name a column that differs")
    drop = dict(_not_features(table, targets))
    inputs = [column for column in table.column_names if column not in drop and column not in targets]
    lines = [
        f"# {table.num_rows} rows, {table.num_columns} columns. Everything here is a guess: read it, then change it.",
        *_doubt_lines(table),
        f"name: {name}",
        "",
        "data:",
        f"  source: {_text(data.source)}",
        f"  target: {_value(targets) if len(targets) > 1 else _text(target)}",
        f"  task: {task}  # {_why(known.select(targets), task)}",
        *_unlabelled_lines(table.num_rows - known.num_rows, table.num_rows),
        *_split_lines(table, task),
        *_drop_lines(drop),
        *_expectation_lines(table, inputs),
        "",
        *_slice_lines(table, inputs),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _target_names(target: str, columns: Sequence[str]) -> list[str]:
    """Return the target columns that `--target` names: one, or several separated by commas."""
    names = [target] if target in columns else [name.strip() for name in target.split(",")]
    for name in names:
        if name not in columns:
            raise UsageError(f"--target: {no_such_column(name, list(columns))}")
    if len(set(names)) < len(names):
        raise UsageError(f"--target: got {target!r}, expected each column once")
    return names


def guess_target(table: pa.Table) -> str:
    """Return the column that is most probably the target: one with a usual name, else the last."""
    lowered = {name.lower(): name for name in table.column_names}
    for usual in _TARGET_NAMES:
        if usual in lowered:
            return str(lowered[usual])
    return str(table.column_names[-1])


def _doubt_lines(table: pa.Table) -> Iterator[str]:
    """Yield comments on columns whose values look like another type than the one they have."""
    values = [name for name in table.column_names if re.fullmatch(_LOOKS_LIKE["numbers"], name)]
    if values:
        yield f"# Column {_text(values[0])} is named by the first line: is it a header? If there is none, write one."
    for name, column in zip(table.column_names, table.columns, strict=True):
        for kind, pattern in _LOOKS_LIKE.items() if is_text(column.type) else ():
            known = as_text(column).drop_null()
            if len(known) and pc.all(pc.match_substring_regex(known, pattern)).as_py():
                example = f"{kind}, such as {_text(known[0].as_py())}"
                yield f"# Column {_text(name)} is text, so each value is a category, though they look like {example}:"
                yield "#   a source of your own (`source: ./data.py:load`) can make them what they are."


def _not_features(table: pa.Table, targets: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in table.column_names:
        column = table.column(name)
        if name in targets:
            continue
        if column.null_count == len(column):
            yield name, "no value at all"
            continue
        num_values = None if pa.types.is_nested(column.type) else _num_values(column)
        if num_values is None:
            yield name, f"of type {column.type}"
        elif num_values == 1 and not column.null_count:
            yield name, "always the same"
        elif _is_id(name, column, num_values):
            yield name, "an id: every row has another value"


def _num_values(column: pa.ChunkedArray) -> int:
    kind = column.type
    plain = column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
    return int(pc.count_distinct(plain).as_py())


def _is_id(name: str, column: pa.ChunkedArray, num_values: int) -> bool:
    if num_values < len(column) or len(column) < MIN_ROWS_OF_IDENTITY:
        return False
    named = re.search(r"(^|_|\b)(id|uuid|key|index|rownames?)($|_|\b)", name.lower()) is not None
    return is_text(column.type) or (pa.types.is_integer(column.type) and named)


def _why(targets: pa.Table, task: str) -> str:
    if targets.num_columns > 1:
        return "each holds 0 and 1" if task == "multilabel" else "each is a number"
    num_values = _num_values(targets.column(0))
    return f"{num_values} different values" if task == "regression" else f"{num_values} classes"


def _unlabelled_lines(num_unanswered: int, num_rows: int) -> Iterator[str]:
    if num_unanswered > (1 - TARGET_PRESENT) * num_rows:
        yield f"  # {num_unanswered} of {num_rows} rows have no target: without this the loop refuses such data."
        yield "  unlabelled: true"


def _split_lines(table: pa.Table, task: str) -> Iterator[str]:
    times = [field.name for field in table.schema if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)]
    if times:
        yield f"  # If the model will predict the future, keep this; else say `by: {_by(task)}`."
        yield f"  split: {{by: time, column: {_text(times[0])}}}"
    else:
        yield "  # If rows belong together (of one person, one machine), say `{by: group, column: ...}`."
        yield f"  split: {{by: {_by(task)}}}"


def _by(task: str) -> str:
    return "random" if task in ("regression", "multilabel") else "stratified"


def _drop_lines(drop: dict[str, str]) -> Iterator[str]:
    yield "  features:"
    yield "    # Also drop what is only known after the event: such a column leaks the answer."
    if not drop:
        yield "    drop: []"
        return
    yield "    drop:"
    for name, reason in drop.items():
        yield f"      - {_text(name)}  # {reason}"


def _expectation_lines(table: pa.Table, columns: list[str]) -> Iterator[str]:
    yield "  # What was seen, with some slack. A warning stops no loop; `reject` does: use it where you are sure."
    yield "  expectations:"
    yield _expectation("table_row_count_to_be_between", {"min_value": max(10, table.num_rows // 2)}, "reject")
    for name in columns:
        column = table.column(name)
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
    least = round(math.floor((low - span * _SLACK) / step) * step, 12)
    most = round(math.ceil((high + span * _SLACK) / step) * step, 12)
    return (max(least, 0.0) if low >= 0 else least), most  # columns without negative values get no negative limit


def _expectation(name: str, arguments: dict[str, Any], severity: str = "warn") -> str:
    settings = ", ".join(f"{key}: {_value(value)}" for key, value in arguments.items())
    return f"    - {{expect: {name}, severity: {severity}, arguments: {{{settings}}}}}"


def _slice_lines(table: pa.Table, columns: list[str]) -> Iterator[str]:
    few = [name for name in columns if is_text(table.schema.field(name).type)]
    few = [name for name in few if 2 <= _num_values(table.column(name)) <= _MAX_SLICE]
    if few:
        yield "judge:"
        yield "  # Each value of these is judged by itself, so that no group pays for the average."
        yield f"  slices: {_value(few[:2])}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value(one) for one in value)}]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    """Return the text unquoted if YAML reads it back unchanged, else quoted."""
    plain = _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)
