"""Rows without a target: dropped, or used as inputs for semi-supervised training (`data.unlabelled`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models.data.clean import made_features, unanswered, usable_rows
from models.data.preparation import Preparation
from models.data.prepared_rows import as_input
from models.data.split import TRAIN, assign, times
from models.fitted_features.state import InputColumns
from models.identity.hashing import hash_values, missing, unit_interval
from models.inputs.image.rows import pixels_of
from models.ngrams.columns import feature_column, plain_texts
from models.project_spec.blocks import Data
from models.project_spec.reserved_columns import FITTED_PREFIX, TEXT_PREFIX
from models.sources.read import read_table

UNLABELLED = "unlabelled"
UNLABELLED_FILE = "unlabelled.parquet"


def write_unlabelled(raw: Path, data: Data, base: Path, preparation: Preparation, folder: Path) -> None:
    """Write the rows of a raw table without a target into a prepared folder, if there are any and the spec keeps them.

    Rows that would belong to validation or test (a later time, the same group or key) are left out: a model must not
    learn from evaluation rows, not even without their targets.

    Raises:
        DataError: A column does not fit the spec.
        UserCodeError: The spec's own feature function failed.
    """
    if not data.unlabelled:
        return
    table = read_table(raw)
    if data.features.make:
        table = made_features(table, data.features.make, base)
    rows = table.filter(pa.array(unanswered(table, data) & _seen_in_training(table, data)))
    if rows.num_rows:
        pq.write_table(_inputs(rows, data, preparation), folder / UNLABELLED_FILE, compression="zstd")


def read_unlabelled(prepared: Path) -> pa.Table | None:
    """Return the inputs of the rows without a target, in the form of `rows.parquet`; None when there are none."""
    path = prepared / UNLABELLED_FILE
    return read_table(path) if path.exists() else None


def _seen_in_training(table: pa.Table, data: Data) -> np.ndarray:
    split = data.split
    if split.column is None or split.by == "stratified":
        return np.ones(table.num_rows, dtype=bool)
    column = table.column(split.column)
    if split.by != "time":
        points = unit_interval(hash_values(column, split.column, split.seed))
        seen: np.ndarray = (points >= split.test + split.validation) & ~missing(column)
        return seen
    when = times(column, split.column)
    answered, positions = usable_rows(table, data, [*data.targets, split.column])
    last = when[positions][assign(answered, split, data.targets[0]) == TRAIN].max()
    before: np.ndarray = (when <= last) & ~missing(column)
    return before


def _inputs(rows: pa.Table, data: Data, preparation: Preparation) -> pa.Table:
    if data.image is not None and preparation.pixels is not None:
        column = rows.column(data.image.column)
        pixels_of(column, data.image)  # raises and names the row if a shape differs
        return pa.table({data.image.column: column.cast(pa.binary())})
    inputs = {name: as_input(rows.column(name), name, preparation) for name in preparation.columns}
    if preparation.fitted:
        from models.fitted_features.fit import feature_values

        names = [part.name for part in preparation.fitted]
        made = feature_values(preparation.lookups, preparation.transform, names, feature_inputs(inputs, preparation))
        inputs |= {FITTED_PREFIX + name: pa.chunked_array([values]) for name, values in made.items()}
    for part in preparation.texts:
        from models.ngrams.fit import ngram_features

        features = ngram_features(preparation.ngrams[part.name], plain_texts(inputs[part.name]))
        inputs[TEXT_PREFIX + part.name] = pa.chunked_array([feature_column(features)])
    return pa.table(inputs)


def feature_inputs(columns: Mapping[str, pa.ChunkedArray | pa.Array], preparation: Preparation) -> InputColumns:
    """Return the prepared columns that fitted features are made of: numbers, times in seconds, and categories."""
    return InputColumns(
        {name: columns[name].to_numpy() for name in preparation.number_columns},
        {part.name: columns[part.name] for part in preparation.categorical},
    )
