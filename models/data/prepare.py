"""From the raw table to the prepared one: clean rows, their splits, and statistics of the training rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from models import scratch
from models.data.check import check_columns, check_id
from models.data.clean import dropped_rows, made_features, usable_rows
from models.data.columns import choose, no_input_column, with_slices
from models.data.known_future import future_inputs
from models.data.preparation import ROWS_FILE, Preparation, SeriesInput
from models.data.row_wise import check_feature_function
from models.data.series import SeriesRows, example_splits, series_rows, with_horizons, with_known_future
from models.data.split import TEST, TRAIN, VALIDATION, SplitRows, assign, check_not_empty, newest, split_key
from models.data.target import infer_task, is_on_log_scale, without_a_class
from models.data.target_encoding import TargetEncoding
from models.data.target_forms import fit_target, learnt_by_texts, prepared_target
from models.data.text import prepare_text
from models.data.unlabelled import write_unlabelled
from models.data.window_reference import SeriesValues, fit_reference, season_of
from models.files import replacing_folder
from models.identity.equal_rows import EqualUnits
from models.identity.hashing import row_identities, stored_identities
from models.inputs.numeric.record import NumericInput
from models.inputs.raw_rows import Columns, LearntInputs, PreparedColumns, RawRows
from models.inputs.rows import kind_of_texts, learn
from models.inputs.types import (
    as_text,
    check_finite,
    is_text,
)
from models.kinds.data_kind import PerDataKind
from models.kinds.task import TASKS, Task
from models.project_spec.blocks import Data, Spec
from models.project_spec.goal import Goal
from models.project_spec.reserved_columns import (
    IDENTITY_COLUMN,
    KEY_COLUMN,
    ROW_COLUMN,
    SERIES_COLUMN,
    SPLIT_COLUMN,
    STEP_COLUMN,
    WEIGHT_COLUMN,
)
from models.project_spec.window import Window
from models.sources.mapped import mapped_table
from models.sources.read import write_parquet


def prepare(raw: Path, spec: Spec, base: Path, out: Path) -> Preparation:
    """Make the prepared folder (`rows.parquet`, `preparation.json`) from `raw.parquet`, completely or not at all.

    Every statistic comes from the training rows alone. `unlabelled.parquet` is written when the spec keeps rows
    without a target and the data has some.

    Args:
        raw: The raw table as Parquet.
        spec: The project's spec; its `data` block and `judge.slices` are read.
        base: The folder of the spec; references are relative to it.
        out: The folder to make; an existing one is replaced.

    Raises:
        DataError: The data does not fit the spec.
        UserCodeError: The spec's own feature function failed.
        StoreError: `out` cannot be written.
    """
    with scratch.arrays_in(out.parent):
        rows, preparation = prepare_table(mapped_table(raw), spec, base)
        with replacing_folder(out) as folder:
            write_rows(rows, preparation, folder)
            del rows
            write_unlabelled(raw, spec.data, base, preparation, folder)
    return preparation


def write_rows(rows: pa.Table, preparation: Preparation, folder: Path) -> None:
    """Write prepared rows and their preparation into a folder."""
    write_parquet(rows, folder / ROWS_FILE)
    preparation.save(folder)


def prepare_table(table: pa.Table, spec: Spec, base: Path) -> tuple[pa.Table, Preparation]:
    """Return the prepared rows and the preparation of a raw table; see `prepare`."""
    data = spec.data
    if data.kind == "text":
        return prepare_text(table, data, spec.judge.slices)
    # Identities come from the raw columns: a new made feature must not move rows between training and test.
    check_id(table, data)
    identities, from_source = row_identities(table, data.id), set(table.column_names)
    if data.features.make:
        check_feature_function(table, data, base)
        table = made_features(table, data.features.make, base)
    check_columns(table, data, spec.judge.slices)
    columns = choose(table.schema, data)
    raw, own_names = table, [name for name in columns.inputs if name in from_source]
    table, positions = usable_rows(raw, data, _needed(raw, spec, columns))
    dropped = dropped_rows(raw, data, positions)
    del raw  # its memory beside that of the prepared rows would be the loop's peak
    if data.window is not None:
        return _prepare_series(data.window, table, positions, identities, spec, columns)
    equal = EqualUnits.of(table, data, own_names or columns.inputs, positions, len(identities))
    codes = assign(table, data.split, data.targets[0], equal.deciding(scratch.at(identities, positions), positions))
    is_newest = np.ones(0, bool) if data.newest is None else newest(codes, split_key(table, data.split), data.newest)
    dropped |= _older(is_newest, data)
    if not is_newest.all():
        table, positions, codes = _rows_of(is_newest, table, positions, codes)
    for reason, is_lost in without_a_class(table, codes, data, spec.goal).items():
        dropped[reason] = int(is_lost.sum())
        table, positions, codes = _rows_of(~is_lost, table, positions, codes)
    check_finite(table, [*columns.of("numeric"), *data.targets], positions)
    at_positions = scratch.at(identities, positions), equal.units_at(positions)
    fitted = SplitRows.of(table, data, codes, positions, *at_positions)
    rows, preparation = _fit(table, data, fitted, columns, spec.goal, base)
    update = {"dropped": dropped, "equal_rows": equal.counted(positions, codes, TEST)}
    return with_slices(rows, table, spec.judge.slices), preparation.model_copy(update=update)


def _rows_of(
    mask: np.ndarray, table: pa.Table, positions: np.ndarray, codes: np.ndarray
) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    return scratch.chosen_rows(table, mask), scratch.chosen(positions, mask), scratch.chosen(codes, mask)


def _prepare_series(
    window: Window, table: pa.Table, positions: np.ndarray, identities: np.ndarray, spec: Spec, columns: Columns
) -> tuple[pa.Table, Preparation]:
    """Prepare the rows of one or many series; all series are cut at the same times."""
    data = spec.data
    table, order, series, steps, *_ = ordered = series_rows(table, window, str(data.split.column))
    positions = np.where(order < 0, order, positions[order])
    check_finite(table, [*columns.of("numeric"), *data.targets], positions)
    codes = assign(table, data.split, data.targets[0])
    is_newest = newest(codes, split_key(table, data.split), data.newest)
    if not is_newest.all():
        table, positions, codes = table.filter(pa.array(is_newest)), positions[is_newest], codes[is_newest]
        series, steps = series[is_newest], _remaining_steps(steps[is_newest], series[is_newest])
    codes = example_splits(codes, steps, table, data)
    check_not_empty(codes, data.split)
    identities_of_rows = np.where(positions < 0, 0, identities[positions])
    rows = SplitRows.of(table, data, codes, positions, identities_of_rows)
    shifted = with_horizons(table, steps, window, data.targets[0])
    shifted = with_known_future(shifted, steps, window, _seen_in_training(rows))
    future = {part.name: part for part in future_inputs(window)}
    columns.kinds.update(dict.fromkeys(future, "numeric"))
    prepared, preparation = _fit(shifted, data, rows, columns, spec.goal)
    prepared = prepared.append_column(SERIES_COLUMN, pa.array(series)).append_column(STEP_COLUMN, pa.array(steps))
    values = _values(prepared, preparation, steps, codes)
    season = season_of(values, ordered.frequency, window)
    update = {
        "series": _series_input(ordered, data, window).model_copy(update={"season": season}),
        "reference": fit_reference(values, preparation, season, spec.goal.reference or ""),
        "dropped": _older(is_newest, data),
    }
    preparation = preparation.with_inputs(
        "numeric", [_of_source(part, future.get(part.name)) for part in preparation.numeric]
    )
    return with_slices(prepared, table, spec.judge.slices), preparation.model_copy(update=update)


def _of_source(part: NumericInput, future: NumericInput | None) -> NumericInput:
    return part if future is None else part.model_copy(update={"source": future.source, "ahead": future.ahead})


def _values(prepared: pa.Table, preparation: Preparation, steps: np.ndarray, codes: np.ndarray) -> SeriesValues:
    inputs = np.stack([prepared.column(part.name).to_numpy() for part in preparation.numeric], axis=1)
    rows = np.flatnonzero(codes == TRAIN)
    moments = prepared.column(KEY_COLUMN).to_numpy()
    rows = rows[np.argsort(moments[rows], kind="stable")]
    return SeriesValues(inputs, prepared.column(preparation.target.name).to_numpy(), steps, rows, moments)


def _older(is_newest: np.ndarray, data: Data) -> dict[str, int]:
    num_older = int((~is_newest).sum())
    return {f"older than the newest {data.newest:,} training rows": num_older} if num_older else {}


def _remaining_steps(steps: np.ndarray, series: np.ndarray) -> np.ndarray:
    """Return the steps before each row, if rows at the beginning of its series were dropped."""
    remaining: np.ndarray = np.minimum(steps, np.arange(len(series)) - np.searchsorted(series, series))
    return remaining


def _series_input(rows: SeriesRows, data: Data, window: Window) -> SeriesInput:
    return SeriesInput(
        time=str(data.split.column),
        key=window.series_key,
        frequency=rows.frequency.text,
        num_series=int(rows.series.max()) + 1,
        num_gaps=rows.num_gaps,
        num_inserted=rows.num_inserted,
    )


def _needed(table: pa.Table, spec: Spec, columns: Columns) -> list[str]:
    """Return the columns that decide a row's split, and those that the prepared rows hold."""
    data = spec.data
    named = {
        *columns.inputs,
        data.weight,
        *data.targets,
        data.split.column,
        *data.series_keys,
        *data.known_future,
        *spec.judge.slices,
    }
    return [name for name in table.column_names if name in named]


def _fit(
    table: pa.Table,
    data: Data,
    rows: SplitRows,
    columns: Columns,
    goal: Goal,
    base: Path | None = None,
) -> tuple[pa.Table, Preparation]:
    prepared: PreparedColumns = {}
    task, target = _target(table, data, rows, prepared, goal)
    learnt = LearntInputs(_by_their_texts(columns, table, data, rows.train))
    answers = partial(_learnt_by_texts, prepared, task, target, rows.train)
    learn(_raw_rows(table, data, rows, base, answers, TASKS[task].has_classes), learnt)
    if not learnt.parts:
        raise no_input_column(columns.left_out)
    preparation = Preparation(
        kind=data.kind,
        task=task,
        target=target,
        inputs=learnt.parts,
        ngrams=learnt.files.ngrams,
        lookups=learnt.files.lookups,
        transform=learnt.files.transform,
        na_is_text=data.na_is_text,
        dates=data.dates,
        decimal_commas=data.decimal_commas,
        window=data.window,
        rows=rows.counts(),
        left_out=columns.left_out,
        extremes=columns.extremes,
    )
    prepared = {**learnt.prepared, **prepared}
    prepared[ROW_COLUMN] = pa.array(rows.positions, pa.int64())
    prepared[IDENTITY_COLUMN] = pa.array(_STORED[data.kind](rows), pa.uint64())
    prepared[SPLIT_COLUMN] = pa.array(rows.codes, pa.int8())
    if rows.weights is not None:
        prepared[WEIGHT_COLUMN] = pa.array(rows.weights)
    if rows.key is not None:
        prepared[KEY_COLUMN] = pa.array(rows.key, pa.int64())
    return pa.table(prepared), preparation


def _raw_rows(
    table: pa.Table,
    data: Data,
    rows: SplitRows,
    base: Path | None,
    answers: Callable[[], np.ndarray],
    has_classes: bool,
) -> RawRows:
    return RawRows(
        table=table,
        data=data,
        base=base,
        train=rows.train,
        seen=_SEEN[data.kind](rows),
        positions=rows.positions,
        units=rows.units,
        weights=rows.train_weights,
        split_times=scratch.chosen(rows.key, rows.train) if data.split.by == "time" and rows.key is not None else None,
        answers=answers,
        has_classes=has_classes,
    )


def _by_their_texts(columns: Columns, table: pa.Table, data: Data, train: np.ndarray) -> Columns:
    """Return the columns with the kinds that texts read like, where the spec names none."""
    for name in columns.inputs:
        column = table.column(name)
        if name not in data.features.kinds and is_text(column.type):
            kind = kind_of_texts(scratch.chosen_values(as_text(column), train), columns.kinds[name])
            if kind != columns.kinds[name]:
                del columns.kinds[name]  # to the end: columns whose kind the spec names come first
                columns.kinds[name] = kind
    return columns


def _seen_in_training(rows: SplitRows) -> np.ndarray:
    """Return True for the rows of series up to the last training target; the first steps are inputs only."""
    assert rows.key is not None  # series are split by time
    return np.asarray(rows.key <= rows.key[rows.train].max())


_SEEN: PerDataKind[Callable[[SplitRows], np.ndarray]] = {
    "table": lambda rows: rows.train,
    "image": lambda rows: rows.train,
    "series": _seen_in_training,
    "text": lambda rows: rows.train,
}
"""The rows whose inputs training sees."""


def _of_table(rows: SplitRows) -> np.ndarray:
    return stored_identities(rows.identities, (rows.codes == TRAIN) | (rows.codes == VALIDATION))


_STORED: PerDataKind[Callable[[SplitRows], np.ndarray]] = {
    "table": _of_table,
    "image": _of_table,
    "series": lambda rows: rows.identities,  # a row of training may hold a target of a test example
    "text": lambda rows: rows.identities,
}
"""The identities that the prepared rows hold."""


def _learnt_by_texts(prepared: PreparedColumns, task: Task, target: TargetEncoding, train: np.ndarray) -> np.ndarray:
    return learnt_by_texts([scratch.chosen_values(prepared[name], train) for name in target.columns], task, target)


def _target(
    table: pa.Table, data: Data, rows: SplitRows, prepared: PreparedColumns, goal: Goal
) -> tuple[Task, TargetEncoding]:
    training = scratch.chosen_rows(table.select(data.targets), rows.train)
    task = infer_task(training, data, goal.metric)
    is_log = is_on_log_scale(table, training, data, task, goal.metric)
    target = fit_target(training, data, task, is_log, rows.train_weights, goal.positive)
    prepared.update(prepared_target(table, target, task, data, (rows.codes, rows.key)))
    return task, target
