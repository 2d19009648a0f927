"""Several outputs of a row: the table of output columns, made from the spec and the training rows, and its true values.

Targets and predictions of such a model are arrays (row, output), in the order of `TargetEncoding.outputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.data.target_encoding import OutputColumn, TargetEncoding
from models.errors import DataError
from models.inputs.types import as_float64, is_number
from models.kinds.task import PerTask, Task
from models.metrics.outputs import horizon_name
from models.project_spec.blocks import Data


def infer_task_of_several(table: pa.Table, data: Data) -> Task:
    """Return the task of several target columns: `data.task`, else multilabel if all hold 0 and 1, else regression.

    Raises:
        DataError: A column is neither, or some are labels and some are numbers.
    """
    if data.task is not None:
        for name in data.targets:
            _CHECKS_OF_SEVERAL[data.task](table.column(name), name)
        return data.task
    labels = [name for name in data.targets if is_label(table.column(name))]
    for name in data.targets:
        if name not in labels and not is_number(table.column(name).type):
            raise DataError(
                f"data.target {name!r}: got type {table.column(name).type}, expected numbers: of several targets each "
                "is a number, or each holds 0 and 1"
            )
    if labels and len(labels) < len(data.targets):
        raise DataError(
            f"data.target: {labels[0]!r} holds 0 and 1 alone, other targets are numbers: say `task: regression` to "
            "predict all as numbers, or make two projects"
        )
    return "multilabel" if labels else "regression"


def is_label(column: pa.ChunkedArray) -> bool:
    """Return whether a column holds nothing but 0 and 1, or booleans; missing values count as neither."""
    if pa.types.is_boolean(column.type):
        return True
    if not is_number(column.type):
        return False
    values = pc.drop_null(column.cast(pa.float64()))
    return len(values) > 0 and bool(pc.all(pc.or_(pc.equal(values, 0.0), pc.equal(values, 1.0))).as_py())


def fit_numbers(training: pa.Table, data: Data, weights: np.ndarray | None = None) -> TargetEncoding:
    """Return the target of several numbers, with the shift and scale of each from the training rows.

    Args:
        training: The target columns of the training rows.
        data: The spec's `data` block.
        weights: Of the training rows (row,), for shift and scale; None: all alike.

    Raises:
        DataError: A target is no number or has no value.
    """
    spreads = {name: _spread(training.column(name), name, weights) for name in data.targets}
    outputs = [OutputColumn(name=name, column=name, shift=a, scale=b) for name, (a, b) in spreads.items()]
    return TargetEncoding(name=data.target_name, outputs=outputs)


def fit_quantiles(training: pa.Table, data: Data, weights: np.ndarray | None = None) -> TargetEncoding:
    """Return the target of the quantiles of a number, which share its shift and scale; for the rest see `fit_numbers`.

    Raises:
        DataError: The target is no number or has no value.
    """
    (name,) = data.targets
    shift, scale = _spread(training.column(name), name, weights)
    levels = data.quantiles or []
    outputs = [
        OutputColumn(name=f"q{level:g}", column=name, shift=shift, scale=scale, quantile=level) for level in levels
    ]
    return TargetEncoding(name=name, outputs=outputs)


def fit_labels(training: pa.Table, data: Data) -> TargetEncoding:
    """Return the target of several labels.

    Raises:
        DataError: A target is no label, or has one value only.
    """
    for name in data.targets:
        _check_label(training.column(name), name)
    return TargetEncoding(
        name=data.target_name, outputs=[OutputColumn(name=name, column=name) for name in data.targets]
    )


def with_outputs(target: TargetEncoding, horizons: Sequence[int], quantiles: Sequence[float] = ()) -> TargetEncoding:
    """Return the target of series whose several horizons, their quantiles, or both are the outputs.

    The quantiles of a horizon are next to each other. All outputs are encoded as the target is; the target of one
    number has none.
    """
    is_one = len(horizons) == 1
    if is_one and not quantiles:
        return target
    levels: Sequence[float | None] = quantiles or [None]
    outputs = [
        OutputColumn(
            name=_name(None if is_one else ahead, level),
            column=target.name if is_one else horizon_name(ahead),
            shift=target.shift,
            scale=target.scale,
            quantile=level,
            horizon=None if is_one else ahead,
        )
        for ahead in horizons
        for level in levels
    ]
    return target.model_copy(update={"outputs": outputs})


def _name(ahead: int | None, level: float | None) -> str:
    parts = [] if ahead is None else [horizon_name(ahead)]
    return "_".join(parts if level is None else [*parts, f"q{level:g}"])


def output_values(rows: pa.Table, target: TargetEncoding) -> np.ndarray:
    """Return the true value of each output, in its own unit: float64 (row, output)."""
    columns = {name: as_float64(rows.column(name), name) for name in target.columns}
    values = scratch.empty((rows.num_rows, len(target.outputs)), np.float64)
    for place, output in enumerate(target.outputs):
        values[:, place] = columns[output.column]
    return values


def _spread(column: pa.ChunkedArray, name: str, weights: np.ndarray | None) -> tuple[float, float]:
    if not is_number(column.type):
        raise DataError(f"data.target {name!r}: got type {column.type}, expected numbers")
    values = as_float64(column, name)
    present = ~np.isnan(values)
    if not present.any():
        raise DataError(
            f"data.target {name!r} has no value in the training rows: fill the column in the source, or name another"
        )
    return middle_and_spread(values[present], name, None if weights is None else weights[present])


def middle_and_spread(values: np.ndarray, name: str, weights: np.ndarray | None = None) -> tuple[float, float]:
    """Return mean and standard deviation (1 for a constant) of a target's training values (rows,).

    Args:
        values: The values.
        name: The target's name.
        weights: Of the rows (rows,); None: all alike.

    Raises:
        DataError: They are no finite numbers, because values are too large.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        middle = float(np.average(values, weights=weights))
        squares = scratch.computed(lambda part: (part - middle) ** 2, values)
        spread = float(np.sqrt(np.average(squares, weights=weights))) or 1.0
    if not np.isfinite([middle, spread]).all():
        raise DataError(
            f"data.target {name!r}: its spread is no finite number, because values reach {np.abs(values).max():.4g}, "
            "expected values below 1e150: leave such cells empty in the source, or give the target in a larger unit"
        )
    return middle, spread


def check_label(column: pa.ChunkedArray, name: str) -> None:
    """Refuse a column that is no label.

    Raises:
        DataError: It holds other values than 0 and 1.
    """
    if not is_label(column):
        raise DataError(_no_label(pa.table({name: column}), name))


def _check_label(column: pa.ChunkedArray, name: str) -> None:
    check_label(column, name)
    values = as_float64(column, name)
    if values.min() == values.max():
        raise DataError(
            f"data.target {name!r}: every training row has {values[0]:g}, expected both 0 and 1: leave the label out, "
            "or give more data"
        )


def _no_label(table: pa.Table, name: str) -> str:
    column = table.column(name)
    values = [value for value in pc.unique(column.slice(0, 1000)).to_pylist() if value not in (None, 0, 1)]
    got = f"type {column.type}" if not is_number(column.type) else f"{values[:3]} among its values"
    return f"data.target {name!r}: got {got}, expected 0 and 1 alone, as every column of a multilabel task has them"


def _accept(column: pa.ChunkedArray, name: str) -> None:
    """Check nothing: numbers are checked as they are read, and other tasks have one target."""


_CHECKS_OF_SEVERAL: PerTask[Callable[[pa.ChunkedArray, str], None]] = {
    "binary": _accept,
    "multiclass": _accept,
    "multilabel": check_label,
    "regression": _accept,
    "quantile": _accept,
    "language": _accept,
    "ranking": _accept,
}
