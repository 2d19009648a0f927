"""Prepared rows as the exported graph takes them: by column name, in the data's own units."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from models.data.header import no_such_column
from models.data.known_future import with_future
from models.data.preparation import ROWS_FILE, SPLITS, Preparation, TextInput
from models.data.prepared_rows import rows_of, split_batches
from models.data.series import first_target
from models.data.target_forms import true_columns, true_values
from models.data.text import text_of, window_starts, windows_of
from models.errors import DataError
from models.inputs.image.record import ImageInput
from models.inputs.image.rows import pixels_of
from models.inputs.record import Form, InputRecord
from models.inputs.rows import values_of
from models.inputs.types import as_text, is_number
from models.kinds.data_kind import PerDataKind
from models.project_spec.reserved_columns import ROW_COLUMN, SLICE_PREFIX, SPLIT_COLUMN, STEP_COLUMN
from models.sources.code_points import code_points
from models.sources.mapped import columns_in_place
from models.sources.read import read_table

Feed = dict[str, np.ndarray]

BATCH_ROWS = 8_192
"""Rows in a feed: enough that a call's own cost does not count, few enough that its tables stay small."""
TEXT_BATCH = 64
"""Most text windows in a feed: for each character the graph returns the probabilities of the whole alphabet."""
_MOST: PerDataKind[float] = {"table": math.inf, "image": math.inf, "series": math.inf, "text": TEXT_BATCH}
"""Most examples in a feed."""

Examples = tuple[int, Callable[[slice | np.ndarray], Feed]]
"""The number of examples of a split, and a function that returns those at some positions in one feed."""


def feeds(
    prepared: Path,
    split: str,
    preparation: Preparation | None = None,
    batch: int = BATCH_ROWS,
    raw: Path | None = None,
) -> Iterator[Feed]:
    """Return the rows of a split, batch by batch, as inputs of an exported graph; none but a batch is in memory.

    Table: one input for each column, (batch,): float64 with NaN, or text with "" for missing. Image: `image` uint8
    (batch, height, width, channel). Series: `series` float64 (batch, length, feature). Text: `text` int64 (batch,
    length + 1), the code points of a window and of the character after it.

    Args:
        prepared: The prepared folder that the rows come from.
        split: `train`, `validation` or `test`.
        preparation: The graph's preparation; default: the folder's own. A champion's may need other columns.
        batch: Examples in each batch except the last.
        raw: The raw table of these rows. Inputs of a table that the prepared rows lack are read from it.

    Raises:
        DataError: The graph needs a column that these rows lack, or a column has another type than the graph needs.
    """
    preparation = preparation or Preparation.load(prepared)
    return _IN_ORDER[preparation.kind](prepared, split, preparation, int(min(batch, _MOST[preparation.kind])), raw)


def feed_at(prepared: Path, split: str, preparation: Preparation, positions: np.ndarray) -> Feed:
    """Return some examples of a split in one feed, in the form of `feeds`.

    Args:
        prepared: The prepared folder that the rows come from.
        split: `train`, `validation` or `test`.
        preparation: The graph's preparation.
        positions: Positions of the examples, int64 (example,), ascending.

    Raises:
        DataError: The split has no example at the last position, or as for `feeds`.
    """
    return _AT[preparation.kind](prepared, split, preparation, positions)


def _rows_at(prepared: Path, split: str, preparation: Preparation, positions: np.ndarray) -> Feed:
    _check_count(prepared, split, Preparation.load(prepared).rows[split], positions)
    names, _ = _stored_and_absent(prepared, preparation.row_inputs)
    return _feed(rows_of(prepared, split, names, positions), preparation.inputs)


def _windows_at(
    examples: Callable[[Path, str, Preparation], Examples],
    prepared: Path,
    split: str,
    preparation: Preparation,
    positions: np.ndarray,
) -> Feed:
    count, feed = examples(prepared, split, preparation)
    _check_count(prepared, split, count, positions)
    return feed(positions)


def _check_count(prepared: Path, split: str, count: int, positions: np.ndarray) -> None:
    if len(positions) and positions[-1] >= count:
        raise DataError(
            f"{prepared}: {count} {split} examples, but tensors of more than {positions[-1]}: remove the tensors and "
            "run again"
        )


def spread_positions(count: int, limit: int) -> np.ndarray:
    """Return at most `limit` positions of `count` examples, int64, ascending and evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).astype(np.int64))


def targets(prepared: Path, split: str) -> np.ndarray:
    """Return the true values of a split in the form for metrics, see `true_values`.

    Text: the code points to be predicted, int64 (windows, length).
    """
    preparation = Preparation.load(prepared)
    return _TARGETS[preparation.kind](prepared, split, preparation)


def _characters_after(prepared: Path, split: str, preparation: Preparation) -> np.ndarray:
    points, starts = _text(prepared, split)
    return windows_of(points, starts, preparation.required_characters.length)[:, 1:]


def _targets_of_rows(prepared: Path, split: str, preparation: Preparation) -> np.ndarray:
    return true_values(rows_of(prepared, split, true_columns(preparation)), preparation)


class SeriesTargets(NamedTuple):
    """The target over the steps of all series, and the steps that a split predicts.

    Attributes:
        values: In its own unit (step,); NaN where it is missing.
        steps: How many steps of the same series lie directly before each, without a gap (step,).
        rows: The step that each example predicts, of several horizons the farthest (example,).
    """

    values: np.ndarray
    steps: np.ndarray
    rows: np.ndarray


def series_targets(prepared: Path, split: str = "test") -> SeriesTargets:
    """Return the target of series, and what a split predicts of it."""
    preparation = Preparation.load(prepared)
    table = read_table(prepared / ROWS_FILE, [preparation.target.name, SPLIT_COLUMN, STEP_COLUMN])
    rows = np.flatnonzero(table.column(SPLIT_COLUMN).to_numpy() == SPLITS.index(split))
    return SeriesTargets(table.column(preparation.target.name).to_numpy(), table.column(STEP_COLUMN).to_numpy(), rows)


def slice_values(prepared: Path, split: str, columns: list[str]) -> dict[str, np.ndarray]:
    """Return the value of each slice column in each row of a split, as text in an object array (rows,).

    Missing values are "". A window of text has the value of the line in which it starts.

    Raises:
        DataError: The folder was prepared without such a column.
    """
    if not columns:
        return {}
    stored_names = pq.read_schema(prepared / ROWS_FILE).names
    stored_columns = {name: name if name in stored_names else SLICE_PREFIX + name for name in columns}
    for name, column in stored_columns.items():
        if column not in stored_names:
            raise DataError(
                f"{prepared / ROWS_FILE}: no column {name!r} for judge.slices: the rows were prepared without it; "
                "run the loop again"
            )
    stored_kind = Preparation.load(prepared).kind
    rows = _ROWS_OF_EXAMPLES[stored_kind](prepared, split, rows_of(prepared, split, list(stored_columns.values())))
    return {name: _text_input(rows.column(column)) for name, column in stored_columns.items()}


def _feeds_of_rows(prepared: Path, split: str, preparation: Preparation, size: int, raw: Path | None) -> Iterator[Feed]:
    names, absent = _stored_and_absent(prepared, preparation.row_inputs, raw)
    if raw is None or not absent:
        for rows in split_batches(prepared, split, names, size):
            yield _feed(rows, preparation.inputs)
        return
    source, parts = columns_in_place(raw, absent), [part for part in preparation.inputs if part.name in absent]
    for rows in split_batches(prepared, split, [*names, ROW_COLUMN], size):
        numbers = rows.column(ROW_COLUMN).to_numpy()
        first = int(numbers.min())
        cells = source.slice(first, int(numbers.max()) + 1 - first).take(pa.array(numbers - first))
        columns = {name: rows.column(name) for name in names}
        columns |= {part.name: values_of(cells.column(part.name), part) for part in parts}
        yield _feed(pa.table(columns), preparation.inputs)


def _feeds_of_windows(
    examples: Callable[[Path, str, Preparation], Examples],
    prepared: Path,
    split: str,
    preparation: Preparation,
    size: int,
    raw: Path | None,
) -> Iterator[Feed]:
    del raw
    num_examples, feed = examples(prepared, split, preparation)
    for start in range(0, num_examples, size):
        yield feed(slice(start, start + size))


def _examples_of_series(prepared: Path, split: str, preparation: Preparation) -> Examples:
    values, ends = _series(prepared, split, preparation)
    steps = np.arange(1 - preparation.required_window.length, 1)  # counted back from a window's last step
    return len(ends), lambda positions: {"series": values[ends[positions, None] + steps]}


def _examples_of_text(prepared: Path, split: str, preparation: Preparation) -> Examples:
    characters, length = _characters(prepared), preparation.required_characters.length
    if length < characters.length:
        raise DataError(
            f"data.text: the model reads {length} characters and these windows are of {characters.length}: they "
            "cannot be "
            "compared; shorten data.text.length, or start a new project"
        )
    points, starts = _text(prepared, split)
    return len(starts), lambda positions: {"text": windows_of(points, starts[positions], characters.length)}


def _text(prepared: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the code points of a split (character,), and where each of its windows starts (windows,)."""
    characters = _characters(prepared)
    points = code_points(text_of(prepared, split, characters))
    return points, window_starts(len(points), characters, split)


def _stored_and_absent(
    prepared: Path, inputs: dict[str, InputRecord], raw: Path | None = None
) -> tuple[list[str], list[str]]:
    """Return the columns that a graph takes of the prepared rows, and those that only the raw table has."""
    names, stored_schema = list(inputs), pq.read_schema(prepared / ROWS_FILE)
    raw_schema = pq.read_schema(raw) if raw is not None else pa.schema([])
    stored_names, raw_names = set(stored_schema.names), set(raw_schema.names)
    absent = [name for name in names if name not in stored_names and name in raw_names]
    _check_inputs(
        pa.schema([*stored_schema, *(raw_schema.field(name) for name in absent)]), names, list(inputs.values())
    )
    return [name for name in names if name not in absent], absent


def _is_time(kind: pa.DataType) -> bool:
    return is_number(kind) or bool(pa.types.is_temporal(kind))


def _any_type(kind: pa.DataType) -> bool:
    del kind
    return True


_TAKEN: dict[Form, tuple[Callable[[pa.DataType], bool], str]] = {
    "number": (is_number, "a number"),
    "time": (_is_time, "a time"),
    "category": (_any_type, "a text"),
    "text": (_any_type, "a text"),
    "image": (_any_type, "bytes"),
    "made": (_any_type, "nothing"),
    "derived": (_any_type, "nothing"),
}
"""Which types of prepared rows an input takes, and what it expects, by its form."""


def _check_inputs(schema: pa.Schema, names: list[str], inputs: list[InputRecord]) -> None:
    wanted, present = set(names), set(schema.names)
    for name in names:
        if name not in present:
            raise DataError(f"the model takes a column that these rows lack: {no_such_column(name, schema.names)}")
    for part in [part for part in inputs if part.name in wanted]:
        kind, (fits, expected) = schema.field(part.name).type, _TAKEN[part.form]
        if not fits(kind):
            raise DataError(
                f"the model takes {part.name!r} as {expected}, but these rows hold {kind}: give the column its former "
                "kind in data.features.kinds, or another name"
            )


def _feed(rows: pa.Table, inputs: list[InputRecord]) -> Feed:
    feed: Feed = {}
    for part in inputs:
        feed |= _FEEDS[part.form](rows, part)
    return feed


def _numbers(rows: pa.Table, part: InputRecord) -> Feed:
    return {part.name: rows.column(part.name).to_numpy()}


def _texts(rows: pa.Table, part: InputRecord) -> Feed:
    return {part.name: _text_input(rows.column(part.name))}


def _images(rows: pa.Table, part: ImageInput) -> Feed:
    return {"image": pixels_of(rows.column(part.name), part.image)}


def _no_column(rows: pa.Table, part: InputRecord) -> Feed:
    del rows, part
    return {}


_FEEDS: dict[Form, Callable[[pa.Table, Any], Feed]] = {
    "number": _numbers,
    "time": _numbers,
    "category": _texts,
    "text": _texts,
    "image": _images,
    "made": _no_column,
    "derived": _no_column,
}
"""What the graph takes of prepared rows, by the form of an input."""


def _text_input(column: pa.ChunkedArray) -> np.ndarray:
    values: np.ndarray = pc.fill_null(as_text(column), "").to_numpy()
    return values


def _characters(prepared: Path) -> TextInput:
    characters = Preparation.load(prepared).characters
    if characters is None:
        raise DataError(f"{prepared}: holds no text: the model reads text, these rows are of another kind")
    return characters


def _own_rows(prepared: Path, split: str, rows: pa.Table) -> pa.Table:
    del prepared, split
    return rows


def _lines_of_windows(prepared: Path, split: str, rows: pa.Table) -> pa.Table:
    characters = _characters(prepared)
    lines = rows_of(prepared, split, [characters.column]).column(0)
    ends = np.cumsum(pc.utf8_length(lines).to_numpy().astype(np.int64) + 1)
    starts = window_starts(int(ends[-1]), characters, split)
    return rows.take(np.searchsorted(ends, starts, side="right"))


def _series(prepared: Path, split: str, preparation: Preparation) -> tuple[np.ndarray, np.ndarray]:
    """Return the values (step, feature) of all steps, and the last step (example,) of each window of a split."""
    stored_window, window = Preparation.load(prepared).window, preparation.required_window
    if stored_window is None or window.horizons != stored_window.horizons:
        raise DataError(
            f"data.window: the model looks {window.horizon} steps ahead and these rows "
            f"{stored_window and stored_window.horizon}: they "
            "cannot be compared; keep the horizon, or start a new project"
        )
    stored_schema = pq.read_schema(prepared / ROWS_FILE)
    # A champion may know columns beforehand that the spec does not name any more: they are made again.
    parts = [part if part.name not in stored_schema.names else part.as_column() for part in preparation.numeric]
    names = list(dict.fromkeys(part.column for part in parts))
    _check_inputs(stored_schema, names, preparation.inputs)
    rows = read_table(prepared / ROWS_FILE, [*names, SPLIT_COLUMN, STEP_COLUMN])
    steps = rows.column(STEP_COLUMN).to_numpy()
    values = with_future({name: rows.column(name).to_numpy() for name in names}, steps, parts)
    targets = np.flatnonzero(rows.column(SPLIT_COLUMN).to_numpy() == SPLITS.index(split))
    if (steps[targets] < first_target(window)).any():
        raise DataError(
            f"data.window: the model's window of {window.length} steps starts before the series does, or before a gap: "
            "keep data.window.length, or start a new project"
        )
    return values, targets - window.last_horizon


_IN_ORDER: PerDataKind[Callable[[Path, str, Preparation, int, Path | None], Iterator[Feed]]] = {
    "table": _feeds_of_rows,
    "image": _feeds_of_rows,
    "series": partial(_feeds_of_windows, _examples_of_series),
    "text": partial(_feeds_of_windows, _examples_of_text),
}
_AT: PerDataKind[Callable[[Path, str, Preparation, np.ndarray], Feed]] = {
    "table": _rows_at,
    "image": _rows_at,
    "series": partial(_windows_at, _examples_of_series),
    "text": partial(_windows_at, _examples_of_text),
}
_TARGETS: PerDataKind[Callable[[Path, str, Preparation], np.ndarray]] = {
    "table": _targets_of_rows,
    "image": _targets_of_rows,
    "series": _targets_of_rows,
    "text": _characters_after,
}
_ROWS_OF_EXAMPLES: PerDataKind[Callable[[Path, str, pa.Table], pa.Table]] = {
    "table": _own_rows,
    "image": _own_rows,
    "series": _own_rows,
    "text": _lines_of_windows,
}
"""The prepared row of each example of a split."""
