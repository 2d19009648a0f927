"""Rows without a target: dropped, or used as inputs for semi-supervised training (`data.unlabelled`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models import scratch
from models.data.clean import made_features, unanswered, usable_rows
from models.data.preparation import Preparation
from models.data.split import TRAIN, assign, times
from models.identity.hashing import hash_values, missing, unit_interval
from models.inputs.rows import prepared_columns
from models.project_spec.blocks import Data
from models.sources.mapped import mapped_table
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
    table = mapped_table(raw)
    if data.features.make:
        table = made_features(table, data.features.make, base)
    rows = scratch.chosen_rows(table, unanswered(table, data) & _seen_in_training(table, data))
    if rows.num_rows:
        inputs = prepared_columns(rows, preparation.inputs, preparation.files)
        pq.write_table(pa.table(inputs), folder / UNLABELLED_FILE, compression="zstd")


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
