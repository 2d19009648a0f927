"""Detection of leakage: columns that alone predict the target almost perfectly, as one made from the target does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.data.preparation import SPLITS, Preparation
from models.data.target_encoding import TargetEncoding
from models.data.target_forms import class_indices
from models.inputs.record import CategoryRecord, Form, InputRecord
from models.kinds.task import PerTask
from models.metrics.metrics import METRICS, Array
from models.project_spec.reserved_columns import FITTED_PREFIX, SPLIT_COLUMN, WEIGHT_COLUMN

LEAST_SCORE = {"roc_auc": 0.995, "r2": 0.99}
"""A score of one column on validation rows that calls for a look at where the column comes from."""
FEWEST_ROWS = 100
MOST_ROWS = 100_000
ROWS_A_BIN, MOST_BINS = 20, 200


class ColumnScore(NamedTuple):
    """A metric, and its value on validation rows."""

    metric: str
    value: float


def single_predictors(rows: pa.Table, preparation: Preparation) -> dict[str, float]:
    """Return the input columns of a table that alone predict a target almost perfectly, with their score.

    Empty for other kinds of data and for fewer than `FEWEST_ROWS` training or validation rows.

    Args:
        rows: The prepared rows; of more than `MOST_ROWS` every n-th counts.
        preparation: Their preparation.

    Cost: a sort of each column.
    """
    step = -(-rows.num_rows // MOST_ROWS)
    rows = rows.take(np.arange(0, rows.num_rows, step)) if step > 1 else rows
    scores = column_scores(rows, preparation, FEWEST_ROWS)
    return {name: score.value for name, score in scores.items() if score.value >= LEAST_SCORE[score.metric]}


def column_scores(rows: pa.Table, preparation: Preparation, fewest: int) -> dict[str, ColumnScore]:
    """Return how well each input column of a table alone predicts the target; of several targets, the best of them.

    Each column but texts is cut into bins or categories; the shares of classes, or the mean rank, in the training rows
    of a bin predict its validation rows. The score is ROC AUC (mean over classes) or R2 of the ranks. Empty for other
    kinds of data and for fewer than `fewest` training or validation rows.
    """
    codes = rows.column(SPLIT_COLUMN).to_numpy()
    train, validation = (codes == SPLITS.index(split) for split in ("train", "validation"))
    if preparation.kind != "table" or min(train.sum(), validation.sum()) < fewest:
        return {}
    weights = rows.column(WEIGHT_COLUMN).to_numpy() if WEIGHT_COLUMN in rows.column_names else np.ones(rows.num_rows)
    train_weights = weights[train]
    target_of, encoding = _TARGETS[preparation.task], preparation.target
    targets = [target_of(rows.column(name), encoding, train) for name in encoding.columns]
    scores: dict[str, ColumnScore] = {}
    for name, cells in _cells(rows, preparation.inputs, train):
        num_cells = int(cells.max()) + 1
        counts = np.bincount(cells[train], train_weights, minlength=num_cells) + 1.0
        for metric, values, target in targets:
            prior = np.average(values[train], axis=0, weights=train_weights)
            sums = [
                np.bincount(cells[train], column_values[train] * train_weights, num_cells) for column_values in values.T
            ]
            predicted = ((np.stack(sums, axis=1) + prior) / counts[:, None])[cells[validation]]
            prediction = predicted if predicted.shape[1] > 1 else predicted[:, 0]
            score = float(METRICS[metric].value(target[validation], prediction, weights[validation]))
            if name not in scores or score > scores[name].value:
                scores[name] = ColumnScore(metric, score)
    return scores


def _two_classes(column: pa.ChunkedArray, target: TargetEncoding, train: Array) -> _Target:
    classes = class_indices(column, target)
    return "roc_auc", classes[:, None].astype(np.float64), classes


def _classes(column: pa.ChunkedArray, target: TargetEncoding, train: Array) -> _Target:
    classes = class_indices(column, target)
    return "roc_auc", np.eye(len(target.class_names))[classes], classes


def _label(column: pa.ChunkedArray, target: TargetEncoding, train: Array) -> _Target:
    numbers = column.to_numpy()
    return "roc_auc", numbers[:, None], numbers.astype(np.int64)


def _ranks(column: pa.ChunkedArray, target: TargetEncoding, train: Array) -> _Target:
    numbers = column.to_numpy()
    ranks = np.searchsorted(np.sort(numbers[train]), numbers) / max(1, int(train.sum()))
    return "r2", ranks[:, None], ranks


_Target = tuple[str, Array, Array]
"""The metric, the values to average in a bin (row, value), and the target for the metric (row,)."""
_TARGETS: PerTask[Callable[[pa.ChunkedArray, TargetEncoding, Array], _Target]] = {
    "binary": _two_classes,
    "multiclass": _classes,
    "multilabel": _label,
    "regression": _ranks,
    "quantile": _ranks,
    "language": _ranks,  # a text is no table
    "ranking": _ranks,
}


def _cells(rows: pa.Table, inputs: list[InputRecord], train: Array) -> list[tuple[str, Array]]:
    """Return the bin or the category of each row, by input: int64 (row,)."""
    return [
        (part.name, cells_of(rows, part, train))
        for form, cells_of in _CELLS.items()
        for part in inputs
        if part.form == form
    ]


def _bins(rows: pa.Table, part: InputRecord, train: Array, prefix: str = "") -> Array:
    values = rows.column(prefix + part.name).to_numpy()
    num_bins = min(MOST_BINS, int(train.sum()) // ROWS_A_BIN)
    sorted_values = np.sort(values[train & ~np.isnan(values)])
    edges = (
        np.unique(np.quantile(sorted_values, np.linspace(0, 1, num_bins + 1)[1:-1]))
        if len(sorted_values)
        else sorted_values
    )
    bins: Array = np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, "right"))
    return bins


def _fitted_bins(rows: pa.Table, part: InputRecord, train: Array) -> Array:
    return _bins(rows, part, train, FITTED_PREFIX)


def _categories(rows: pa.Table, part: CategoryRecord, _: Array) -> Array:
    encoded = pc.index_in(rows.column(part.name), pa.array(part.categories, pa.string()))
    indices: Array = pc.add(pc.fill_null(encoded, -1), 1).to_numpy().astype(np.int64)
    return indices


_CELLS: dict[Form, Callable[[pa.Table, Any, Array], Array]] = {
    "number": _bins,
    "time": _bins,
    "made": _fitted_bins,
    "category": _categories,
}
"""The forms that are cut into cells; a text says more than one cell."""
