"""Raw rows that inputs are learnt of, and what is learnt of them: the terms in which each kind reads rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from models.folds import Units
from models.inputs.record import InputRecord, LearntFiles
from models.inputs.records import RECORDS
from models.project_spec.blocks import Data

PreparedColumns = dict[str, pa.Array | pa.ChunkedArray]
"""Columns of prepared rows by name: numbers as float64 with NaN, times as seconds, categories and texts with null."""
Tensors = dict[str, np.ndarray]
Record = TypeVar("Record", bound=InputRecord)


@dataclass(frozen=True)
class Columns:
    """The input columns with their kinds, and why each other column is left out.

    Attributes:
        kinds: The kind of each input column.
        left_out: Why a column is no input.
        extremes: What was made of the values of a column that are far from all others.
    """

    kinds: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    extremes: dict[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> list[str]:
        """All input columns, kind by kind."""
        return [name for kind in RECORDS for name in self.of(kind)]

    def of(self, kind: str) -> list[str]:
        """Return the columns of one kind."""
        return [name for name, kind_of_column in self.kinds.items() if kind_of_column == kind]


@dataclass(frozen=True)
class RawRows:
    """Raw rows of all splits, from which the inputs are learnt.

    Attributes:
        table: The rows.
        data: The spec's data block.
        base: The folder that the spec's references are relative to; None: it makes no fitted features.
        train: True for training rows (rows,).
        seen: True for rows whose inputs may be learnt from (rows,): of series also the steps before the first target.
        positions: Where each row stands in the source (row,), from 0.
        units: Which rows are not independent.
        weights: How much each training row counts; None: all alike.
        split_times: The time of the split in the training rows, if rows are split by time.
        answers: Returns what texts learn for each training row: class indices (row,), numbers on the net's scale
            (row,), or values of several targets (row, target).
        has_classes: Whether these are classes.
    """

    table: pa.Table
    data: Data
    base: Path | None
    train: np.ndarray
    seen: np.ndarray
    positions: np.ndarray
    units: Units
    weights: np.ndarray | None
    split_times: np.ndarray | None
    answers: Callable[[], np.ndarray]
    has_classes: bool


@dataclass
class LearntInputs:
    """What has been learnt so far; each kind adds to it.

    Attributes:
        columns: The columns, into which left-out and extreme ones are written.
        parts: The records.
        prepared: The columns of the prepared rows.
        files: What was learnt beside the records.
    """

    columns: Columns
    parts: list[InputRecord] = field(default_factory=list)
    prepared: PreparedColumns = field(default_factory=dict)
    files: LearntFiles = field(default_factory=LearntFiles)

    def add(self, name: str, column: pa.Array | pa.ChunkedArray) -> None:
        """Add a column of the prepared rows."""
        self.prepared[name] = column


def _never(texts_or_type: pa.ChunkedArray | pa.DataType) -> bool:
    """Return False: no column is taken for this kind unless the spec says so."""
    del texts_or_type
    return False


def _always_fits(name: str, kind: pa.DataType) -> str:
    """Return no reason against a column of any type."""
    del name, kind
    return ""


def _nothing_made(
    parts: Sequence[InputRecord], inputs: Sequence[InputRecord], prepared: PreparedColumns, files: LearntFiles
) -> PreparedColumns:
    """Return no further columns."""
    del parts, inputs, prepared, files
    return {}


@dataclass(frozen=True)
class KindRows(Generic[Record]):
    """How one kind of input reads rows. A function takes all inputs of the kind at once; `fit` and `made` may get none.

    Attributes:
        fit: Learns the columns of these names.
        values: Returns a raw column as the prepared rows hold it.
        encode: Returns blocks of columns of tensors, from prepared rows.
        guess: Whether columns of an Arrow type are of this kind unless the spec says another.
        reads: Whether a column of texts reads like this kind, by the texts of its training rows.
        misfit: Why a column, by its name and its Arrow type, cannot be of this kind; empty: it can.
        made: Returns further columns of the prepared rows, from the inputs of the kind, all inputs and their columns.
    """

    fit: Callable[[Sequence[str], RawRows, LearntInputs], Sequence[Record]]
    values: Callable[[pa.ChunkedArray, Record], pa.ChunkedArray]
    encode: Callable[[pa.Table, Sequence[Record], LearntFiles], Tensors]
    guess: Callable[[pa.DataType], bool] = _never
    reads: Callable[[pa.ChunkedArray], bool] = _never
    misfit: Callable[[str, pa.DataType], str] = _always_fits
    made: Callable[[Sequence[Record], Sequence[InputRecord], PreparedColumns, LearntFiles], PreparedColumns] = (
        _nothing_made
    )
