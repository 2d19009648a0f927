"""A first spec for a table without a spec: guessed settings, each with a comment that says why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from models.data.clean import unanswered
from models.data.header import no_such_column
from models.data.target import infer_task
from models.data.target_forms import LARGEST_GRADE
from models.errors import UsageError
from models.inference.forms import with_forms
from models.inputs.rows import kind_of_texts
from models.inputs.types import as_text, is_bytes, is_text
from models.kinds.task import PerTask, Task
from models.project_spec.blocks import Data
from models.project_spec.data import SqlQuery
from models.scaffold.columns import input_lines, num_values, plain_id
from models.scaffold.cursor import NO_CURSOR, WHEN_CHANGED, Cursor, cursor_of, query_lines
from models.scaffold.dates import date_forms, forms_of
from models.scaffold.expectations import expectation_lines, yaml_text, yaml_value
from models.scaffold.roles import BEHAVES, NAMED, Panel, id_reason, is_date, panel_of, times_of_rows
from models.scaffold.series import SeriesShape, recognise
from models.scaffold.text_forms import TextForm, is_number_name, is_useless_as_text, text_forms
from models.sources.delimiter import forms_by_column
from models.sources.readers.decimal_commas import decimal_commas
from models.sources.sample import TableSample, sample_of
from models.sources.source import Named
from models.validation.alike_classes import alike_classes
from models.validation.expectations import TARGET_PRESENT

_TARGET_NAMES = ("target", "label", "class", "y", "outcome", "churn", "relevance", "price")
_GRADE_NAMES, _GROUP_NAMES = ("relevance", "relevance_label", "grade"), ("query", "query_id", "qid", "search_id")
"""Names that together say that a table holds a ranking: grades of the results of queries."""
_CURES = {
    "dates": "`data.dates`, with the form of Python's strptime,",
    "numbers": "`data.decimal_commas`, if they are 1.234,5, or a source of your own (`source: ./data.py:load`),",
}
_ADVICE = {
    "text": (
        "text: sentences. A linear model of their words gives features to all nets, and a small transformer",
        "reads them in their order. Say `categorical` where a value is a category.",
    ),
    "datetime": ("datetime: its place in day, week and year is an input; the date itself, which only grows, is none.",),
}
"""What a first spec says of the columns whose kind it names."""
_MAX_SLICE = 10
_FEWEST_TIMES = 10

Rows = Path | TableSample
"""A file or folder, or a sample of its rows."""


def guess_spec(data: Rows, name: str, target: str | None = None, source: Named | None = None) -> str:
    """Return the text of a valid `project.yaml` for a table, with comments.

    Args:
        data: A file or folder, or a sample of its rows.
        name: The project's name.
        target: The column to predict, or several separated by commas; default: `guess_target`.
        source: The value of `data.source`; default: the path. A sample needs one.

    Raises:
        DataError: The file cannot be read, or the target is of a type that cannot be predicted.
        UsageError: The target does not exist, or has no values to learn.
    """
    sample, source = data if isinstance(data, TableSample) else sample_of(data), source or str(data)
    dates, commas = date_forms(sample.table), sample.written.commas or decimal_commas(sample.table, ",")
    table = with_forms(sample.table, forms_by_column(dates, commas))
    target = target or guess_target(table)
    targets = _target_names(target, table.column_names)
    block = Data(source=source, target=targets if len(targets) > 1 else targets[0])
    answered = _answered(table, block, target)
    task, group = _guess_task(answered, block)
    guess = _GUESSES[task]
    forms, roles = text_forms(table), [*targets, *([group] if group else [])]
    kinds = _kinds_of_texts(table, {*roles, *forms})
    is_forecast = len(targets) == 1 and answered.num_rows >= TARGET_PRESENT * table.num_rows
    shape = guess.series(table.slice(0, sample.num_first), target) if is_forecast else None
    drop, inputs = _inputs(table, roles, kinds, forms)
    id_column = None if shape else plain_id(table, [name for name, reason in drop.items() if reason == NAMED])
    cursor = cursor_of(sample.table.drop_columns(targets), id_column) if isinstance(source, SqlQuery) else NO_CURSOR
    rows, inputs, kinds = _without_changes(table, cursor, drop, inputs, kinds)
    panel = None if shape or group else panel_of(rows, targets)
    time = None if shape or group else _split_time(rows, inputs, panel)
    if not inputs and not shape:
        raise UsageError(_no_inputs(str(source), target, drop))
    lines = [
        f"# {_size(sample)}, {table.num_columns} columns. Everything here is a guess: read it, then change it.",
        *_doubt_lines(table, block, forms, drop),
        *_data_lines(name, block, cursor),
        *_reading_lines([name for name in sample.written.codes if name != id_column], dates, commas),
        *([] if shape else [*_id_lines(id_column), f"  task: {task}  # {guess.why(answered.select(targets))}"]),
        *([] if shape or group else _unlabelled_lines(table.num_rows - answered.num_rows, table.num_rows)),
        *(_series_lines(shape) if shape else _split_lines(time, guess.split, group, panel)),
        *_feature_lines(table.select([] if shape else inputs), drop, {} if shape else _with_time(kinds, table, time)),
        *expectation_lines(table, inputs, targets[0], sample.num_rows or table.num_rows),
        "",
        *guess.goal_lines(answered.column(targets[0])),
        *([] if shape else _slice_lines(table, inputs)),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _with_time(kinds: dict[str, str], table: pa.Table, time: str | None) -> dict[str, str]:
    """Return the kinds that a spec names, the column of times that splits the rows among them."""
    return {**kinds, time: "datetime"} if time and is_date(table, time) else kinds


def _size(sample: TableSample) -> str:
    """Return how many rows there are, and how many of them a sample has."""
    if sample.is_whole:
        return f"{sample.num_rows} rows"
    total = "More rows than were read" if sample.num_rows is None else f"About {sample.num_rows:,} rows"
    return f"{total} (a sample of {sample.table.num_rows:,} was read)"


def _inputs(
    table: pa.Table, roles: Sequence[str], kinds: Collection[str], forms: Mapping[str, TextForm]
) -> tuple[dict[str, str], list[str]]:
    """Return the columns that are no input, with the reason of each, and those that are."""
    drop = dict(_not_features(table, {*roles, *kinds}, forms))
    if {*drop, *roles} >= {*table.column_names}:  # a number in the order of the file that is the only input is no id
        drop = {name: reason for name, reason in drop.items() if reason != BEHAVES}
    left_out = {*drop, *roles}
    return drop, [column for column in table.column_names if column not in left_out]


def _without_changes(
    table: pa.Table, cursor: Cursor, drop: dict[str, str], inputs: list[str], kinds: dict[str, str]
) -> tuple[pa.Table, list[str], dict[str, str]]:
    """Drop the time of changes if it is the cursor; return the table, the inputs and the kinds without it."""
    if not cursor.is_change:
        return table, inputs, kinds
    changed = str(cursor.column)
    drop[changed] = WHEN_CHANGED
    inputs = [name for name in inputs if name != changed]
    return table.drop_columns([changed]), inputs, {name: kind for name, kind in kinds.items() if name != changed}


def _refuse_constants(targets: pa.Table) -> None:
    for name, column in zip(targets.column_names, targets.columns, strict=True):
        if num_values(column) < 2:
            raise UsageError(f"--target: every row has the same {name!r}: name a column that differs")


def _no_inputs(source: str, target: str, drop: dict[str, str]) -> str:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in drop.items()) or "there is no other column"
    return f"{source}: no column is left to predict {target!r} from ({reasons}): add columns to the data"


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
    """Return the column that is most probably the target: one with a usual name, else the last that holds no texts."""
    lowered = {name.lower(): name for name in table.column_names}
    for usual in _TARGET_NAMES:
        if usual in lowered:
            return str(lowered[usual])
    names = [name for name in table.column_names if not is_bytes(table.column(name).type)] or table.column_names
    labels = [name for name in names if not _kind_of(table.column(name))]
    return str((labels or names)[-1])


def _kind_of(column: pa.ChunkedArray) -> str:
    """Return the kind that a column of texts reads like; empty for others, whose types say their kinds."""
    return kind_of_texts(as_text(column), "") if is_text(column.type) else ""


def _answered(table: pa.Table, data: Data, target: str) -> pa.Table:
    """Return the rows that have a target."""
    answered = table.filter(pc.invert(pa.array(unanswered(table, data))))
    if not answered.num_rows:
        raise UsageError(f"--target: {target!r} has no value at all in {table.num_rows} rows: name another column")
    return answered


def _kinds_of_texts(table: pa.Table, unread: Collection[str]) -> dict[str, str]:
    """Return the kinds of the columns of texts that read like one, but for some."""
    kinds = {name: _kind_of(table.column(name)) for name in table.column_names if name not in unread}
    return {name: kind for name, kind in kinds.items() if kind}


def _doubt_lines(table: pa.Table, data: Data, forms: Mapping[str, TextForm], drop: Collection[str]) -> Iterator[str]:
    """Yield comments on columns whose values look like another type than the one they have, and on their classes."""
    values = [name for name in table.column_names if is_number_name(name)]
    if values:
        first = yaml_text(values[0])
        yield f"# Column {first} is named by the first line: is it a header? If there is none, write one."
    for name, form in forms.items():
        example = f"{form.kind}, such as {yaml_text(form.example)}"
        but = f" (all but {form.num_others}, such as {yaml_text(form.other)})" if form.num_others else ""
        is_what = "it is left out" if name in drop else "each value is a category"
        yield f"# Column {yaml_text(name)} is text, so {is_what}, though they look like {example}{but}:"
        yield f"#   {_CURES[form.kind]} can make them what they are."
        if form.kind == "dates" and len(forms_of(table.column(name))) > 1:
            yield "#   No value says whether the day or the month comes first, so no order was guessed."
    for message in alike_classes(table, data):
        yield f"# {message[0].upper()}{message[1:]}."


def _not_features(table: pa.Table, roles: Collection[str], forms: Mapping[str, TextForm]) -> Iterator[tuple[str, str]]:
    for name in table.column_names:
        column = table.column(name)
        if name in roles:
            continue
        if column.null_count == len(column):
            yield name, "no value at all"
            continue
        count = None if pa.types.is_nested(column.type) else num_values(column)
        if count is None:
            yield name, f"of type {column.type}"
        elif count == 1 and not column.null_count:
            yield name, "always the same"
        elif name in forms and is_useless_as_text(column, count):
            yield name, f"{forms[name].kind} as text, such as {yaml_text(forms[name].example)}"
        elif reason := id_reason(name, column, count):
            yield name, reason


def _guess_task(answered: pa.Table, data: Data) -> tuple[Task, str | None]:
    """Return the task, and of a ranking the column of the groups, from the rows that have a target."""
    targets = answered.select(data.targets)
    task = infer_task(targets, data)
    _GUESSES[task].check(targets)
    group = _group_of(answered, data.targets)
    return "ranking" if group else task, group


def _group_of(table: pa.Table, targets: Sequence[str]) -> str | None:
    """Return the column of the queries if the names of target and column, and the grades, say it is a ranking."""
    lowered = {name.lower(): name for name in table.column_names}
    group = next((lowered[name] for name in _GROUP_NAMES if name in lowered), None)
    if group is None or len(targets) > 1 or targets[0].lower() not in _GRADE_NAMES or group in targets:
        return None
    grades, groups = table.column(targets[0]), table.column(group)
    is_graded = pa.types.is_integer(grades.type) and 0 <= pc.min(grades).as_py() <= pc.max(grades).as_py()
    is_graded = is_graded and pc.max(grades).as_py() <= LARGEST_GRADE
    return str(group) if is_graded and not groups.null_count and 2 * num_values(groups) <= len(groups) else None


def _why_numbers(targets: pa.Table) -> str:
    return "each is a number" if targets.num_columns > 1 else f"{num_values(targets.column(0))} different values"


def _why_classes(targets: pa.Table) -> str:
    return f"{num_values(targets.column(0))} classes"


def _why_labels(targets: pa.Table) -> str:
    return "each holds 0 and 1"


def _why_grades(targets: pa.Table) -> str:
    return f"{num_values(targets.column(0))} grades; the rows of a group are put in order"


def _accept(targets: pa.Table) -> None:
    """Accept any number: that all are equal is said when the model is judged."""


def _no_series(table: pa.Table, target: str) -> SeriesShape | None:
    return None


def _no_lines(column: pa.ChunkedArray) -> Iterator[str]:
    yield from ()


def positive_lines(column: pa.ChunkedArray) -> Iterator[str]:
    """Yield the positive one of two classes: the rarer one, of equal ones the later."""
    counts = {
        str(count_of_value["values"]): count_of_value["counts"].as_py()
        for count_of_value in as_text(column).drop_null().value_counts()
    }
    rarer = min(sorted(counts, reverse=True), key=lambda name: counts[name])
    yield "goal:"
    yield (
        f"  positive: {yaml_text(rarer)}  # the rarer class, {counts[rarer] / sum(counts.values()):.2g} of the rows: "
        "metric, costs and threshold are about it"
    )


def _unlabelled_lines(num_unanswered: int, num_rows: int) -> Iterator[str]:
    if num_unanswered > (1 - TARGET_PRESENT) * num_rows:
        yield f"  # {num_unanswered} of {num_rows} rows have no target: without this the loop refuses such data."
        yield "  unlabelled: true"


def _split_time(table: pa.Table, inputs: Sequence[str], panel: Panel | None) -> str | None:
    """Return the column of times to split by: there are other inputs, and it has enough values and none is missing."""
    named = [panel.time] if panel else []
    times = [name for name in [*named, *times_of_rows(table)] if num_values(table.column(name)) >= _FEWEST_TIMES]
    return times[0] if times and set(inputs) - {times[0]} else None


def _split_lines(time: str | None, split: str, queries: str | None, panel: Panel | None) -> Iterator[str]:
    if queries:
        yield f"  split: {{by: group, column: {yaml_text(queries)}}}"
    elif panel:
        unit, moment = yaml_text(panel.unit), yaml_text(panel.time)
        yield f"  # Each {unit} has rows over {moment}. Split at random, a row is tested beside rows of its own that"
        yield "  # were learnt, which flatters the model. By time it predicts the future of what it knows; by group"
        yield f"  # (`{{by: group, column: {unit}}}`) what it does not know."
        by, column = ("time", moment) if time else ("group", unit)
        yield f"  split: {{by: {by}, column: {column}}}"
    elif time:
        yield f"  # If the model will predict the future, keep this; else say `by: {split}`."
        yield f"  split: {{by: time, column: {yaml_text(time)}}}"
    else:
        yield "  # If rows belong together (of one person, one machine), say `{by: group, column: ...}`."
        yield f"  split: {{by: {split}}}"


def _series_lines(shape: SeriesShape) -> Iterator[str]:
    unit = "a row" if shape.key is None else f"a row of each {yaml_text(shape.key)}"
    yield f"  # {unit[0].upper()}{unit[1:]} a {shape.frequency}: a forecast of the next one. For a plain table, remove"
    yield f"  # `kind` and `window`. The model sees {shape.length} past steps."
    yield "  kind: series"
    key = "" if shape.key is None else f", series_key: {yaml_text(shape.key)}"
    if shape.num_missing:
        yield f"  # {shape.num_missing:,} steps are missing: `fill` inserts them without values to learn from."
    gaps = ", gaps: fill" if shape.num_missing else ""
    yield f"  window: {{length: {shape.length}, horizon: 1{key}{gaps}}}"
    yield f"  split: {{by: time, column: {yaml_text(shape.time)}}}"


def _data_lines(name: str, data: Data, cursor: Cursor) -> Iterator[str]:
    target = data.targets if len(data.targets) > 1 else data.targets[0]
    yield f"name: {name}"
    yield ""
    yield "data:"
    if isinstance(data.source, SqlQuery):
        yield from query_lines(data.source, cursor)
    else:
        yield f"  source: {yaml_text(str(data.source))}"
    yield f"  target: {yaml_text(target) if isinstance(target, str) else yaml_value(target)}"


def _reading_lines(codes: Sequence[str], dates: Mapping[str, str], commas: Sequence[str]) -> Iterator[str]:
    if dates:
        yield "  # Texts that are dates, by their form; rows to predict may have it too."
        yield f"  dates: {yaml_value(dates)}"
    if commas:
        yield "  # Numbers with decimal commas, 1.234,56; rows to predict may have them too."
        yield f"  decimal_commas: {yaml_value([*commas])}"
    if codes:
        yield "  # Codes, of which some begin with a zero: their cells are read as texts, else 05123 would be 5123."
        yield f"  na_is_text: {yaml_value([*codes])}"


def _id_lines(name: str | None) -> Iterator[str]:
    if name is not None:
        yield f"  id: {yaml_text(name)}  # another value in every row: it names rows, for labels that come later"


def _feature_lines(inputs: pa.Table, drop: dict[str, str], kinds: dict[str, str]) -> Iterator[str]:
    yield "  features:"
    yield from input_lines(inputs, kinds)
    for kind in dict.fromkeys(kinds.values()):
        yield from (f"    # {line}" for line in _ADVICE.get(kind, ()))
    if kinds:
        yield f"    kinds: {{{', '.join(f'{yaml_text(name)}: {kind}' for name, kind in kinds.items())}}}"
    yield "    # Also drop what is only known after the event: such a column leaks the answer."
    if not drop:
        yield "    drop: []"
        return
    yield "    drop:"
    for name, reason in drop.items():
        yield f"      - {yaml_text(name)}  # {reason}"


def _slice_lines(table: pa.Table, columns: list[str]) -> Iterator[str]:
    few = [name for name in columns if is_text(table.schema.field(name).type)]
    few = [name for name in few if 2 <= num_values(table.column(name)) <= _MAX_SLICE]
    if few:
        yield "judge:"
        yield "  # Each value of these is judged by itself, so that no group pays for the average."
        yield f"  slices: {yaml_value(few[:2])}"


@dataclass(frozen=True)
class _Guess:
    """What a first spec says about a task."""

    why: Callable[[pa.Table], str]
    """Why the targets are guessed to be of the task."""
    split: str = "stratified"
    check: Callable[[pa.Table], None] = _refuse_constants
    series: Callable[[pa.Table, str], SeriesShape | None] = _no_series
    goal_lines: Callable[[pa.ChunkedArray], Iterator[str]] = _no_lines


_NUMBERS = _Guess(_why_numbers, split="random", check=_accept, series=recognise)
_GUESSES: PerTask[_Guess] = {
    "binary": _Guess(_why_classes, goal_lines=positive_lines),
    "multiclass": _Guess(_why_classes),
    "multilabel": _Guess(_why_labels, split="random"),
    "regression": _NUMBERS,
    "quantile": _NUMBERS,  # never guessed: a spec names the quantiles
    "language": _NUMBERS,  # never guessed from a table
    "ranking": _Guess(_why_grades),
}
