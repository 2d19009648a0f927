"""The table of how each kind of input reads rows, in the order in which they are learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from models.inputs.raw_rows import KindRows, LearntInputs, PreparedColumns, RawRows, Tensors
from models.inputs.record import COLUMNS, InputRecord, LearntFiles
from models.inputs.records import RECORDS, by_kind
from models.kinds.data_kind import PerDataKind

LEARNT = sorted(RECORDS, key=lambda kind: RECORDS[kind].model_fields["form"].default not in COLUMNS)
"""The kinds in the order in which they are learnt: last those that are made of the columns of all others."""
LEARNT_OF: PerDataKind[Sequence[str]] = {"table": LEARNT, "image": LEARNT, "series": ["numeric"], "text": []}
"""The kinds that are learnt of rows. Gaps of a window are filled, and a forecast continues numbers as they are."""
ROWS: dict[str, KindRows[Any]] = {kind: import_module(f"models.inputs.{kind}.rows").ROWS for kind in LEARNT}
"""What the folder of each kind says; the keys of steps see it by a pattern (`models/pipeline/steps.py`)."""


def kind_of_texts(texts: pa.ChunkedArray, guess: str) -> str:
    """Return the kind that a column of texts reads like, by the texts of its training rows, else the guess by type."""
    return next((kind for kind, row in ROWS.items() if row.reads(texts)), guess)


def learn(rows: RawRows, learnt: LearntInputs) -> None:
    """Learn all inputs from raw rows, kind by kind, into `learnt`; a preparation puts them in the order of tensors.

    Raises:
        DataError: A column cannot be of its kind.
        UserCodeError: The spec's own functions failed.
    """
    for kind in LEARNT_OF[rows.data.kind]:
        learnt.parts.extend(ROWS[kind].fit(learnt.columns.of(kind), rows, learnt))


def values_of(column: pa.ChunkedArray, part: InputRecord) -> pa.ChunkedArray:
    """Return a raw column as the prepared rows hold it: float64 with NaN (times in seconds), or texts with null.

    Raises:
        DataError: The column's values are not of the kind that the model takes.
    """
    return ROWS[part.kind].values(column, part)


def prepared_columns(rows: pa.Table, inputs: Sequence[InputRecord], files: LearntFiles) -> PreparedColumns:
    """Return the columns of the prepared rows for raw rows, with all that is made of them.

    Raises:
        DataError: A column's values are not of the kind that the model takes.
    """
    columns: PreparedColumns = {
        part.name: values_of(rows.column(part.name), part) for part in inputs if part.form in COLUMNS
    }
    parts_of = by_kind(inputs)
    for kind, row in ROWS.items():
        columns |= row.made(parts_of.get(kind, []), inputs, columns, files)
    return columns


def encoded(
    rows: pa.Table, inputs: Sequence[InputRecord], files: LearntFiles, tensors: Mapping[str, np.ndarray]
) -> Tensors:
    """Return the tensors of prepared rows.

    Args:
        rows: The prepared rows.
        inputs: The model's inputs.
        files: What was learnt beside the records.
        tensors: Tensors without a column, (rows, 0), of the names that there always are.
    """
    blocks = {name: [tensor] for name, tensor in tensors.items()}
    for kind, parts in by_kind(inputs).items():
        for name, block in ROWS[kind].encode(rows, parts, files).items():
            blocks.setdefault(name, []).append(block)
    return {name: np.ascontiguousarray(np.concatenate(columns, axis=1)) for name, columns in blocks.items()}
