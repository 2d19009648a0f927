"""Monitoring in a backtest: the live windows, checks and signals, at a moment in the past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from models.data.clean import made_features
from models.kinds.data_kind import PerDataKind
from models.metrics.metrics import Array
from models.monitoring.alarms import signals
from models.monitoring.assess import AssessmentRules, WindowPredictions, assess, sum_up
from models.monitoring.report import WindowReport
from models.monitoring.tally import INPUT, tally
from models.project_spec.blocks import Data, Kind
from models.triggers.signal import Signal


@dataclass(frozen=True)
class PastPredictions:
    """A champion's predictions since it went live: raw row, target and prediction of each, in time order."""

    row: Array
    target: Array
    prediction: Array

    @classmethod
    def joined(cls, parts: Sequence[PastPredictions]) -> PastPredictions:
        """Join the predictions of several periods, one after the other."""
        arrays = zip(*((part.row, part.target, part.prediction) for part in parts), strict=True)
        return cls(*map(np.concatenate, arrays))

    def windows(self, size: int) -> list[slice]:
        """Return the complete windows of `size` predictions."""
        return [slice(first, first + size) for first in range(0, len(self.row) - size + 1, size)]


def assess_window(
    served: PastPredictions,
    part: slice,
    labelled: int,
    watched: AssessmentRules,
    inputs: pa.Table | None,
    times: Array,
    past: Sequence[WindowReport],
) -> WindowReport:
    """Assess one window in its state when only the labels of the first `labelled` rows are known.

    Args:
        served: The predictions.
        part: The window's part of them.
        labelled: Labels of earlier rows are known, of this and later ones not.
        watched: The values to assess it against.
        inputs: The window's inputs with the column names of the prediction log; None if there are no columns.
        times: Times of all rows, Unix seconds.
        past: The windows before it.
    """
    assert watched.reference is not None
    rows, prediction = served.row[part], served.prediction[part]
    is_labelled = rows < labelled
    table = _with_scores(inputs, prediction)
    return assess(
        WindowPredictions(
            first=part.start,
            begin=float(times[rows[0]]),
            end=float(times[rows[-1]]),
            tally=tally(table, watched.reference, watched.bounds),
            whole=True,
            num_labels=int(is_labelled.sum()),
            target=served.target[part][is_labelled],
            prediction=prediction[is_labelled],
            scores=prediction,
        ),
        watched,
        past,
    )


def inputs_of(
    table: pa.Table, rows: Array, data: Data, columns: list[str], kind: Kind, stop: int, base: Path
) -> pa.Table | None:
    """Return the inputs of some rows with the column names of the prediction log; None for a model without columns.

    Args:
        table: All rows in time order; rows from `stop` on are not read.
        rows: Which of them.
        data: The spec's data block.
        columns: Names of the model's input columns.
        kind: The kind of its data.
        stop: Number of rows that had arrived.
        base: The folder of the spec.
    """
    names = _LOGGED_COLUMNS[kind](columns)
    if not names:
        return None
    table = table.slice(0, stop)
    if data.features.make:
        table = made_features(table, data.features.make, base)
    chosen = table.select(names).take(pa.array(rows))
    return chosen.rename_columns([INPUT + name for name in names])


def _all_columns(columns: list[str]) -> list[str]:
    return columns


def _no_columns(columns: list[str]) -> list[str]:
    del columns
    return []


_LOGGED_COLUMNS: PerDataKind[Callable[[list[str]], list[str]]] = {
    "table": _all_columns,
    "image": _no_columns,
    "series": _no_columns,
    "text": _no_columns,
}
"""The columns whose single values monitoring compares; an image, a window or a text is more than one value."""


def signals_of(project: str, moment: float, windows: Sequence[WindowReport], watched: AssessmentRules) -> list[Signal]:
    """Return the signals of the windows, by the live rule of `alarms` out of `of`."""
    return signals(sum_up(project, moment, windows, watched), watched.monitor)


def _with_scores(inputs: pa.Table | None, prediction: Array) -> pa.Table:
    if prediction.ndim == 1:
        name, values = "score", pa.array(prediction.astype(np.float64))
    else:
        name, values = "scores", pa.array(list(prediction.astype(np.float64)))
    return pa.table({name: values}) if inputs is None else inputs.append_column(name, values)
