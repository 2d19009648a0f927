"""Rows of a period in the form for a model: by its own preparation, and without any later rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.backtest.periods import RowRange
from models.data.clean import made_features
from models.data.header import no_such_column
from models.data.preparation import SPLITS, Preparation
from models.data.prepare import prepare_table, write_rows
from models.data.prepared_rows import rows_of
from models.data.series import NO_SPLIT, first_target, series_rows, with_horizons
from models.data.target_forms import FORMS
from models.errors import DataError
from models.files import replacing_folder
from models.identity.hashing import missing
from models.inputs.rows import values_of
from models.inputs.types import as_text
from models.kinds.data_kind import PerDataKind
from models.project_spec.blocks import Data, Spec
from models.project_spec.reserved_columns import ROW_COLUMN, SPLIT_COLUMN, STEP_COLUMN

_TEST = SPLITS.index("test")


def prepare_known(table: pa.Table, rows: RowRange, spec: Spec, base: Path, out: Path) -> Preparation:
    """Make the prepared folder of the rows known so far: the spec's own split and statistics, over `rows` alone.

    Raises:
        DataError: These rows do not fit the spec, or there are too few of some kind.
        UserCodeError: The spec's own feature function failed.
        StoreError: `out` cannot be written.
    """
    training_rows = table.slice(rows.first, rows.stop - rows.first)
    prepared, preparation = prepare_table(training_rows, spec, base)
    with replacing_folder(out) as folder:
        write_rows(prepared, preparation, folder)
    return preparation


def write_period(table: pa.Table, rows: RowRange, data: Data, base: Path, preparation: Preparation, out: Path) -> int:
    """Write `rows` of the table as the test split of a prepared folder, for a model with that preparation.

    A row whose class the model has never seen is left out, because the model cannot name it.

    Args:
        table: The raw rows in time order; rows after `rows` are not read.
        rows: Those of the period.
        data: The spec's data block.
        base: The folder of the spec.
        preparation: Preparation of the predicting model.
        out: The folder to make.

    Returns:
        How many rows were left out.

    Raises:
        DataError: An input column of the model is absent, or no row is left.
        UserCodeError: The spec's own feature function failed.
    """
    rows_so_far = table.slice(0, rows.stop)
    if data.features.make:
        rows_so_far = made_features(rows_so_far, data.features.make, base)
    form = PERIOD_FORMS[preparation.kind]
    steps = form.steps(rows_so_far, preparation)
    rows_so_far = form.with_targets(rows_so_far, steps, data, preparation)
    _check_columns(rows_so_far, preparation)
    first = max(0, rows.first - form.context(preparation))
    part = rows_so_far.slice(first)
    codes = np.where(np.arange(first, rows.stop) >= rows.first, _TEST, NO_SPLIT).astype(np.int8)
    steps = steps[first:]
    usable = _usable(part, preparation, steps)
    codes[~usable] = NO_SPLIT
    left_out = int((~usable[rows.first - first :]).sum())
    if not (codes == _TEST).any():
        raise DataError(
            f"no row of this period can be predicted and judged ({left_out} without a known class): take longer "
            "periods (`--period`), or leave such classes out in the source"
        )
    columns = {name: _column(part, name, preparation) for name in _names(preparation)}
    columns[ROW_COLUMN] = pa.array(np.arange(first, rows.stop), pa.int64())
    columns[SPLIT_COLUMN] = pa.array(codes, pa.int8())
    columns[STEP_COLUMN] = pa.array(steps)
    with replacing_folder(out) as folder:
        write_rows(pa.table(columns), preparation, folder)
    return left_out


def rows_predicted(folder: Path) -> np.ndarray:
    """Return which rows of the table the test rows of a folder of `write_period` are, int64 (rows,)."""
    rows = rows_of(folder, "test", [ROW_COLUMN]).column(0).to_numpy()
    return np.asarray(rows)


def _names(preparation: Preparation) -> list[str]:
    return list(dict.fromkeys([*preparation.row_inputs, *preparation.target.columns]))


def _check_columns(table: pa.Table, preparation: Preparation) -> None:
    for name in _names(preparation):
        if name not in table.column_names:
            nearest = no_such_column(name, table.column_names)
            raise DataError(f"the model takes a column that these rows lack: {nearest}")


def _no_steps(table: pa.Table, preparation: Preparation) -> np.ndarray:
    del preparation
    return np.zeros(table.num_rows, dtype=np.int64)


def _steps_of_series(table: pa.Table, preparation: Preparation) -> np.ndarray:
    series = preparation.required_series
    window = preparation.required_window.model_copy(update={"frequency": series.frequency})
    return series_rows(table, window, series.time).steps


def _as_they_are(table: pa.Table, steps: np.ndarray, data: Data, preparation: Preparation) -> pa.Table:
    del steps, data, preparation
    return table


def _with_horizons(table: pa.Table, steps: np.ndarray, data: Data, preparation: Preparation) -> pa.Table:
    if data.targets[0] not in table.column_names:
        return table
    return with_horizons(table, steps, preparation.required_window, data.targets[0])


def _no_context(preparation: Preparation) -> int:
    del preparation
    return 0


def _steps_before_target(preparation: Preparation) -> int:
    return first_target(preparation.required_window)


def _all_complete(steps: np.ndarray, preparation: Preparation) -> np.ndarray:
    del preparation
    return np.ones(len(steps), dtype=bool)


def _with_window_before(steps: np.ndarray, preparation: Preparation) -> np.ndarray:
    window = preparation.required_window
    step = steps - first_target(window)
    return np.asarray((step >= 0) & (step % window.stride == 0))


class PeriodForm(NamedTuple):
    """How rows of a period become examples.

    Attributes:
        steps: Returns how many steps of a series lie directly before each row, without a gap, int64 (rows,).
        with_targets: Returns the rows with the true values of several horizons; a row is the example whose last
            horizon it is.
        context: Returns how many rows before its own an example looks at.
        is_complete: Returns True for rows that have all steps of their example before them, bool (rows,).
    """

    steps: Callable[[pa.Table, Preparation], np.ndarray]
    with_targets: Callable[[pa.Table, np.ndarray, Data, Preparation], pa.Table]
    context: Callable[[Preparation], int]
    is_complete: Callable[[np.ndarray, Preparation], np.ndarray]


_ROWS_APART = PeriodForm(_no_steps, _as_they_are, _no_context, _all_complete)
PERIOD_FORMS: PerDataKind[PeriodForm] = {
    "table": _ROWS_APART,
    "image": _ROWS_APART,
    "series": PeriodForm(_steps_of_series, _with_horizons, _steps_before_target, _with_window_before),
    "text": _ROWS_APART,  # a backtest refuses texts before: `in_time_order`
}


def _usable(part: pa.Table, preparation: Preparation, steps: np.ndarray) -> np.ndarray:
    """Return True for rows that can be examples: with a known target and, for a series, a complete window before."""
    usable = np.ones(part.num_rows, dtype=bool)
    for name in preparation.target.columns:
        usable &= ~missing(part.column(name))
    if preparation.target.classes is not None:
        is_supported = pc.is_in(
            as_text(part.column(preparation.target.name)), pa.array(preparation.target.classes, pa.string())
        )
        usable &= is_supported.to_numpy().astype(bool)
    usable &= PERIOD_FORMS[preparation.kind].is_complete(steps, preparation)
    return np.asarray(usable)


def _column(part: pa.Table, name: str, preparation: Preparation) -> pa.Array | pa.ChunkedArray:
    column = part.column(name)
    if name in preparation.row_inputs:
        return values_of(column, preparation.row_inputs[name])
    if name in preparation.target.columns:
        return FORMS[preparation.task].column(column, name)
    return as_text(column)
