"""From the raw table to the prepared one: clean rows, their splits, and statistics of the training rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models.data.check import check_columns, check_id
from models.data.clean import dropped_rows, made_features, usable_rows
from models.data.columns import choose, no_input_column, with_slices
from models.data.known_future import future_inputs
from models.data.preparation import ROWS_FILE, Preparation, SeriesInput, TargetEncoding
from models.data.row_wise import check_feature_function
from models.data.series import SeriesRows, example_splits, series_rows, with_horizons, with_known_future
from models.data.split import TEST, TRAIN, SplitRows, assign, check_not_empty, newest, split_key
from models.data.target import infer_task, is_on_log_scale, without_a_class
from models.data.target_forms import class_indices, fit_target, prepared_target
from models.data.text import prepare_text
from models.data.unlabelled import feature_inputs, write_unlabelled
from models.data.window_reference import SeriesValues, fit_reference, season_of
from models.errors import DataError, UserCodeError
from models.files import replacing_folder
from models.fitted_features.state import FeatureCode
from models.identity.equal_rows import EqualUnits
from models.identity.hashing import row_identities
from models.inputs.categorical.record import CategoricalInput
from models.inputs.categorical.rows import categorical_input
from models.inputs.datetime.record import DatetimeInput
from models.inputs.datetime.rows import as_seconds, fit_datetime
from models.inputs.fitted.record import FittedInput
from models.inputs.image.record import ImageInput
from models.inputs.image.rows import fit_pixels, pixels_of
from models.inputs.numeric.record import NumericInput
from models.inputs.numeric.rows import fit_numeric, numeric_input
from models.inputs.record import InputRecord
from models.inputs.text.record import TextColumn
from models.inputs.types import (
    NOT_YET,
    Columns,
    as_float64,
    as_text,
    check_finite,
    dtype_of,
    is_collected_later,
    is_text,
)
from models.kinds.task import Task
from models.ngrams.columns import feature_column, holds_texts, plain_texts
from models.ngrams.model import NgramModel
from models.project_spec.blocks import Data, Spec
from models.project_spec.goal import Goal
from models.project_spec.reserved_columns import (
    FITTED_PREFIX,
    IDENTITY_COLUMN,
    KEY_COLUMN,
    ROW_COLUMN,
    SERIES_COLUMN,
    SPLIT_COLUMN,
    STEP_COLUMN,
    TEXT_PREFIX,
    WEIGHT_COLUMN,
)
from models.sources.read import ROW_GROUP, read_table

PreparedColumns = dict[str, pa.ChunkedArray | pa.Array]


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
    rows, preparation = prepare_table(read_table(raw), spec, base)
    with replacing_folder(out) as folder:
        write_rows(rows, preparation, folder)
        write_unlabelled(raw, spec.data, base, preparation, folder)
    return preparation


def write_rows(rows: pa.Table, preparation: Preparation, folder: Path) -> None:
    """Write prepared rows and their preparation into a folder."""
    pq.write_table(rows, folder / ROWS_FILE, compression="zstd", row_group_size=ROW_GROUP)
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
        return _prepare_series(table, positions, identities, spec, columns)
    equal = EqualUnits.of(table, data, own_names or columns.inputs, positions, len(identities))
    codes = assign(table, data.split, data.targets[0], equal.deciding(identities[positions], positions))
    is_newest = newest(codes, split_key(table, data.split), data.newest)
    dropped |= _older(is_newest, data)
    if not is_newest.all():
        table, positions, codes = table.filter(pa.array(is_newest)), positions[is_newest], codes[is_newest]
    for reason, is_lost in without_a_class(table, codes, data, spec.goal).items():
        dropped[reason] = int(is_lost.sum())
        table, positions, codes = table.filter(pa.array(~is_lost)), positions[~is_lost], codes[~is_lost]
    check_finite(table, [*columns.numeric, *data.targets], positions)
    fitted = SplitRows.of(table, data, codes, positions, identities[positions], equal.units_at(positions))
    rows, preparation = _fit(table, data, fitted, columns, spec.goal, base)
    update = {"dropped": dropped, "equal_rows": equal.counted(positions, codes, TEST)}
    return with_slices(rows, table, spec.judge.slices), preparation.model_copy(update=update)


def _prepare_series(
    table: pa.Table, positions: np.ndarray, identities: np.ndarray, spec: Spec, columns: Columns
) -> tuple[pa.Table, Preparation]:
    """Prepare the rows of one or many series; all series are cut at the same times."""
    data, window = spec.data, spec.data.window
    assert window is not None
    table, order, series, steps, *_ = ordered = series_rows(table, window, str(data.split.column))
    positions = np.where(order < 0, order, positions[order])
    check_finite(table, [*columns.numeric, *data.targets], positions)
    codes = assign(table, data.split, data.targets[0])
    is_newest = newest(codes, split_key(table, data.split), data.newest)
    if not is_newest.all():
        table, positions, codes = table.filter(pa.array(is_newest)), positions[is_newest], codes[is_newest]
        series, steps = series[is_newest], _remaining_steps(steps[is_newest], series[is_newest])
    codes = example_splits(codes, steps, table, data)
    check_not_empty(codes, data.split)
    own = np.where(positions < 0, 0, identities[positions])
    rows = SplitRows.of(table, data, codes, positions, own)
    shifted = with_horizons(table, steps, window, data.targets[0])
    shifted = with_known_future(shifted, steps, window, _seen_in_training(rows))
    future = {part.name: part for part in future_inputs(window)}
    columns.numeric.extend(future)
    made, preparation = _fit(shifted, data, rows, columns, spec.goal)
    made = made.append_column(SERIES_COLUMN, pa.array(series)).append_column(STEP_COLUMN, pa.array(steps))
    values = _values(made, preparation, steps, codes)
    season = season_of(values, ordered.frequency, window)
    update = {
        "series": _series_input(ordered, data).model_copy(update={"season": season}),
        "reference": fit_reference(values, preparation, season, spec.goal.reference or ""),
        "dropped": _older(is_newest, data),
    }
    preparation = preparation.with_inputs(
        "numeric", [_of_source(part, future.get(part.name)) for part in preparation.numeric]
    )
    return with_slices(made, table, spec.judge.slices), preparation.model_copy(update=update)


def _of_source(part: NumericInput, future: NumericInput | None) -> NumericInput:
    return part if future is None else part.model_copy(update={"source": future.source, "ahead": future.ahead})


def _values(made: pa.Table, preparation: Preparation, steps: np.ndarray, codes: np.ndarray) -> SeriesValues:
    inputs = np.stack([made.column(part.name).to_numpy() for part in preparation.numeric], axis=1)
    rows = np.flatnonzero(codes == TRAIN)
    moments = made.column(KEY_COLUMN).to_numpy()
    rows = rows[np.argsort(moments[rows], kind="stable")]
    return SeriesValues(inputs, made.column(preparation.target.name).to_numpy(), steps, rows, moments)


def _older(is_newest: np.ndarray, data: Data) -> dict[str, int]:
    num_older = int((~is_newest).sum())
    return {f"older than the newest {data.newest:,} training rows": num_older} if num_older else {}


def _remaining_steps(steps: np.ndarray, series: np.ndarray) -> np.ndarray:
    """Return the steps before each row, if rows at the beginning of its series were dropped."""
    remaining: np.ndarray = np.minimum(steps, np.arange(len(series)) - np.searchsorted(series, series))
    return remaining


def _series_input(rows: SeriesRows, data: Data) -> SeriesInput:
    assert data.window is not None
    return SeriesInput(
        time=str(data.split.column),
        key=data.window.series_key,
        frequency=rows.frequency.text,
        num_series=int(rows.series.max()) + 1,
        num_gaps=rows.num_gaps,
        num_inserted=rows.num_inserted,
    )


def _needed(table: pa.Table, spec: Spec, columns: Columns) -> list[str]:
    """Return the columns that decide a row's split, and those that the prepared rows hold."""
    data = spec.data
    inputs = [*columns.inputs, data.image and data.image.column, data.weight]
    window = [data.window.series_key, *data.window.known_future] if data.window else []
    named = {*inputs, *data.targets, data.split.column, *window, *spec.judge.slices}
    return [name for name in table.column_names if name in named]


def _fit(
    table: pa.Table, data: Data, rows: SplitRows, columns: Columns, goal: Goal, base: Path | None = None
) -> tuple[pa.Table, Preparation]:
    made: PreparedColumns = {}
    numeric = [part for name in columns.numeric if (part := _numeric(table, name, data, rows, made, columns))]
    categorical = [_categorical(table, name, data, rows, made, columns) for name in columns.categorical]
    pixels = _pixels(table, data, rows, made)
    datetimes = _datetimes(table, data, rows, made, columns)
    encoded = [part for part in categorical if part is not None]
    task, target = _target(table, data, rows, made, goal)
    texts, ngrams = _texts(table, rows, made, columns, target)
    inputs: list[InputRecord] = [*numeric, *encoded, *datetimes, *texts, *pixels]
    if not inputs:
        raise no_input_column(columns.left_out)
    preparation = Preparation(
        kind=data.kind,
        task=task,
        target=target,
        inputs=inputs,
        ngrams=ngrams,
        na_is_text=data.na_is_text,
        window=data.window,
        rows=rows.counts(),
        left_out=columns.left_out,
        extremes=columns.extremes,
    )
    if data.features.fit is not None and base is not None:
        preparation = _with_fitted(preparation, table, data, rows, made, base)
    made[ROW_COLUMN] = pa.array(rows.positions, pa.int64())
    made[IDENTITY_COLUMN] = pa.array(rows.identities, pa.uint64())
    made[SPLIT_COLUMN] = pa.array(rows.codes, pa.int8())
    if rows.weights is not None:
        made[WEIGHT_COLUMN] = pa.array(rows.weights)
    if rows.key is not None:
        made[KEY_COLUMN] = pa.array(rows.key, pa.int64())
    return pa.table(made), preparation


def _numeric(
    table: pa.Table,
    name: str,
    data: Data,
    rows: SplitRows,
    made: PreparedColumns,
    columns: Columns,
) -> NumericInput | None:
    values = as_float64(table.column(name), name)
    seen = rows.train if data.kind != "series" else _seen_in_training(rows)
    part = numeric_input(name, values, seen, data, columns)
    if part is not None:
        made[name] = pa.array(values)
    return part


def _seen_in_training(rows: SplitRows) -> np.ndarray:
    """Return True for the rows of series up to the last training target; the first steps are inputs only."""
    assert rows.key is not None  # series are split by time
    return np.asarray(rows.key <= rows.key[rows.train].max())


def _categorical(
    table: pa.Table,
    name: str,
    data: Data,
    rows: SplitRows,
    made: PreparedColumns,
    columns: Columns,
) -> CategoricalInput | None:
    texts = as_text(table.column(name))
    training = texts.filter(pa.array(rows.train))
    if name not in data.features.kinds and is_text(table.column(name).type) and holds_texts(training):
        columns.text.append(name)
        return None
    part = categorical_input(name, texts, training, dtype_of(table.column(name).type), data.features, columns)
    if part is not None:
        made[name] = texts
    return part


def _datetimes(
    table: pa.Table, data: Data, rows: SplitRows, made: PreparedColumns, columns: Columns
) -> list[DatetimeInput]:
    parts = []
    for name in columns.datetime:
        seconds = as_seconds(table.column(name), name, rows.positions)
        split_times = rows.key[rows.train] if data.split.by == "time" and rows.key is not None else None
        part = fit_datetime(name, seconds[rows.train], split_times)
        if part.width:
            made[name] = pa.array(seconds)
            parts.append(part)
        else:
            is_empty = np.isnan(seconds[rows.train]).all()
            columns.left_out[name] = NOT_YET if is_empty else "a time without any cycle or trend in the training rows"
    return parts


def _texts(
    table: pa.Table,
    rows: SplitRows,
    made: PreparedColumns,
    columns: Columns,
    target: TargetEncoding,
) -> tuple[list[TextColumn], dict[str, NgramModel]]:
    parts: list[TextColumn] = []
    models: dict[str, NgramModel] = {}
    if not columns.text:
        return parts, models
    from models.ngrams.fit import fit_ngrams, ngram_features
    from models.ngrams.word_graph import usual_length
    from models.ngrams.words import word_index

    for name in columns.text:
        column = as_text(table.column(name))
        texts = plain_texts(column)
        if is_collected_later(name, column.is_valid().to_numpy(), rows.train):
            columns.left_out[name] = NOT_YET
            continue
        training = np.flatnonzero(rows.train)
        answers = _learnt_by_texts(made, target, rows.train)
        seen = [texts[row] for row in training]
        learnt = fit_ngrams(seen, answers, target.classes is not None, rows.units.at(training), rows.train_weights)
        if learnt is None:
            columns.left_out[name] = "no word or piece of a word is in two training texts"
            continue
        others = np.flatnonzero(~rows.train)
        features = np.empty((len(texts), learnt[0].num_features), np.float32)
        features[training], features[others] = learnt[1], ngram_features(learnt[0], [texts[row] for row in others])
        made[name], made[TEXT_PREFIX + name] = column, feature_column(features)
        models[name] = learnt[0]
        known = word_index(learnt[0])
        parts.append(
            TextColumn(
                name=name,
                num_terms=len(learnt[0].terms),
                num_features=learnt[0].num_features,
                length=usual_length(learnt[0], seen),
                words=list(known.words),
                stems=list(known.stems),
            )
        )
    return parts, models


def _learnt_by_texts(made: PreparedColumns, target: TargetEncoding, train: np.ndarray) -> np.ndarray:
    """Return class indices (row,), numbers on the net's scale (row,), or values of several targets (row, target)."""
    columns = [made[name].filter(pa.array(train)) for name in target.columns]
    if target.classes:
        return class_indices(columns[0], target)
    values = np.stack([column.to_numpy() for column in columns], axis=1)
    return values if target.outputs else target.encode(values[:, 0])


def _with_fitted(
    preparation: Preparation,
    table: pa.Table,
    data: Data,
    rows: SplitRows,
    made: PreparedColumns,
    base: Path,
) -> Preparation:
    """Add the features of `data.features.fit` to the rows and to the preparation."""
    from models.fitted_features.fit import FitRows, fit_features

    code = FeatureCode(str(data.features.fit), data.features.transform, base)
    learnt = fit_features(
        code, FitRows(table, data.targets, rows.train, rows.units), feature_inputs(made, preparation), as_text
    )
    parts = []
    for name, values in learnt.values.items():
        try:
            fitted = fit_numeric(name, values[rows.train], data.features)
        except DataError as error:
            raise UserCodeError(f"data.features.fit {code.fit}: {error}") from error
        parts.append(FittedInput(**fitted.model_dump(include={"name", "fill", "shift", "scale", "low", "high"})))
        made[FITTED_PREFIX + name] = pa.array(values)
    preparation = preparation.model_copy(update={"lookups": learnt.lookups, "transform": learnt.graph})
    return preparation.with_inputs("fitted", parts)


def _pixels(table: pa.Table, data: Data, rows: SplitRows, made: PreparedColumns) -> list[ImageInput]:
    if data.kind != "image" or data.image is None:
        return []
    column = table.column(data.image.column)
    images = pixels_of(column, data.image, rows.positions)
    made[data.image.column] = column.cast(pa.binary())
    return [fit_pixels(images[rows.train], data.image)]


def _target(
    table: pa.Table, data: Data, rows: SplitRows, made: PreparedColumns, goal: Goal
) -> tuple[Task, TargetEncoding]:
    training = table.select(data.targets).filter(pa.array(rows.train))
    task = infer_task(training, data, goal.metric)
    is_log = is_on_log_scale(table, training, data, task, goal.metric)
    target = fit_target(training, data, task, is_log, rows.train_weights, goal.positive)
    made.update(prepared_target(table, target, task, data, rows))
    return task, target
