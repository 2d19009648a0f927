"""Builds the reference of an exported model: columns of the training rows, scores and calibration of the test rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from models import scratch
from models.data.feeds import feeds, targets
from models.data.preparation import ROWS_FILE, SPLITS, Preparation
from models.data.prepared_rows import column_of
from models.data.weights import weights_of
from models.inference.predict import predict
from models.inputs.record import CategoryRecord, Form, InputRecord
from models.kinds.data_kind import PerDataKind
from models.monitoring.calibration import fit_calibration
from models.monitoring.coverage import coverage_of
from models.monitoring.histogram import Bins, CategoricalBins, Counts, Weights, as_rows, measured, numeric_bins
from models.monitoring.reference import Reference, ReferenceColumn
from models.monitoring.tally import INPUT, PredictionCounts, scores_of, tally
from models.project_spec.reserved_columns import KEY_COLUMN, SPLIT_COLUMN

BATCH_ROWS = 1 << 16


Rows = Callable[[str, list[str]], Iterable[pa.Table]]
"""Returns the rows of a split, batch by batch, with the given columns in the given order; it is called repeatedly."""


def build(prepared: Path, graph: Path, preparation: Preparation) -> Reference:
    """Return the reference of an exported model.

    Args:
        prepared: The prepared folder that the model was trained on.
        graph: The exported model.
        preparation: Its preparation.

    Cost: reads each numeric column of the training rows by itself, then all in batches; predicts the test rows.
    """
    prediction = predict(graph, feeds(prepared, "test", preparation), preparation)
    target = targets(prepared, "test")
    with pq.ParquetFile(prepared / ROWS_FILE) as file:  # opened once: the time to open a file grows with its columns
        times = _TIMES[preparation.kind](prepared)
        rows = functools.partial(_batches, file)
        weights = {
            split: weights for split in ("train", "test") if (weights := weights_of(prepared, split)) is not None
        }
        return reference_of(preparation, target, prediction, rows, times, weights)


def reference_of(
    preparation: Preparation,
    target: NDArray[Any],
    prediction: NDArray[np.float64],
    rows: Rows,
    times: NDArray[np.int64] | None = None,
    weights: Mapping[str, Weights] | None = None,
) -> Reference:
    """Return the reference of a model, from its test predictions and its training rows.

    Args:
        preparation: The model's.
        target: Targets of the test rows, in the form for metrics.
        prediction: Predictions of the test rows, in the form for metrics.
        rows: Returns training and test rows; called for tables only.
        times: Of series, the time of each test example (example,).
        weights: Of the training and the test examples (example,), by split; none: all count alike.
    """
    classes = preparation.target.classes
    prediction = prediction.mean(axis=1) if preparation.characters is not None else prediction
    outputs = preparation.target.outputs
    watched = scores_of(prediction, preparation.task, [output.name for output in outputs])
    tests = weights["test"] if weights else None
    scores = [_score(name, values, classes, tests) for name, values in watched.items()]
    calibration = fit_calibration(target, prediction) if classes else None
    weighted = fit_calibration(target, prediction, tests) if classes and tests is not None else None
    span = preparation.window.last_horizon if preparation.window else 1
    coverage = coverage_of(target, prediction, outputs, times, span)
    weighted_coverage = coverage_of(target, prediction, outputs, times, span, tests) if tests is not None else None
    empty = Reference(
        task=preparation.task,
        classes=classes,
        scores=scores,
        calibration=calibration,
        weighted_calibration=weighted,
        coverage=coverage,
        weighted_coverage=weighted_coverage,
    )
    return _WITH_COLUMNS[preparation.kind](empty, preparation, rows, weights or {})


def _times_of_series(prepared: Path) -> NDArray[np.int64]:
    return column_of(prepared, "test", KEY_COLUMN)


_TIMES: PerDataKind[Callable[[Path], NDArray[np.int64] | None]] = {
    "table": lambda prepared: None,
    "image": lambda prepared: None,
    "series": _times_of_series,
    "text": lambda prepared: None,
}
"""Of series, the time of each test example (example,)."""


def _with_columns(empty: Reference, preparation: Preparation, rows: Rows, weights: Mapping[str, Weights]) -> Reference:
    bins = [_BINS[form](rows, part) for form in _BINS for part in preparation.inputs if part.form == form]
    blank = [
        ReferenceColumn(bins=column_bins, counts=np.zeros(column_bins.num_cells, dtype=np.int64))
        for column_bins in bins
    ]
    unfilled = empty.model_copy(update={"columns": blank, "scores": []})
    train, test = (_tally(rows, split, unfilled) for split in ("train", "test"))
    sums = {split: _weighted_counts(rows, split, bins, of_rows) for split, of_rows in weights.items()}
    columns = [
        ReferenceColumn(
            bins=column_bins,
            counts=train.counts[INPUT + column_bins.name],
            outside=_outside(column_bins, test.counts.get(INPUT + column_bins.name)),
            weighted=_weighted(column_bins, place, sums, weights) if weights else None,
        )
        for place, column_bins in enumerate(bins)
        if train.num_rows
    ]
    return empty.model_copy(update={"columns": columns})


def _weighted_counts(rows: Rows, split: str, bins: Sequence[Bins], weights: Weights) -> list[Counts]:
    """Return the sums of the weights in the cells of each column."""
    sums, first = [np.zeros(column_bins.num_cells) for column_bins in bins], 0
    for table in rows(split, [column_bins.name for column_bins in bins]):
        part = weights[first : first + table.num_rows]
        for place, column in enumerate(table.columns):
            sums[place] += bins[place].count(column, part)
        first += table.num_rows
    return sums


def _weighted(
    bins: Bins, place: int, sums: Mapping[str, list[Counts]], weights: Mapping[str, Weights]
) -> ReferenceColumn:
    counts = as_rows(sums["train"][place], weights["train"])
    return ReferenceColumn(bins=bins, counts=counts, outside=_outside(bins, sums["test"][place]))


_WITH_COLUMNS: PerDataKind[Callable[[Reference, Preparation, Rows, Mapping[str, Weights]], Reference]] = {
    "table": _with_columns,
    "image": lambda empty, preparation, rows, weights: empty,
    "series": lambda empty, preparation, rows, weights: empty,
    "text": lambda empty, preparation, rows, weights: empty,
}


def _tally(rows: Rows, split: str, reference: Reference) -> PredictionCounts:
    names = [column.name for column in reference.columns]
    renamed = (table.rename_columns([INPUT + name for name in names]) for table in rows(split, names))
    return sum((tally(table, reference) for table in renamed), PredictionCounts())


def _numeric_bins(rows: Rows, part: InputRecord) -> Bins:
    values = (measured(table.column(0), part.measure) for table in rows("train", [part.name]))
    return numeric_bins(part.name, scratch.joined(values, np.float64), part.measure)


def _category_bins(_: Rows, part: CategoryRecord) -> Bins:
    return CategoricalBins(name=part.name, categories=part.categories)


_BINS: dict[Form, Callable[[Rows, Any], Bins]] = {
    "number": _numeric_bins,
    "time": _numeric_bins,
    "text": _numeric_bins,
    "category": _category_bins,
}
"""Of the training rows, by how they give an input."""


def _batches(file: pq.ParquetFile, split: str, names: list[str]) -> Iterator[pa.Table]:
    for batch in file.iter_batches(BATCH_ROWS, columns=[*names, SPLIT_COLUMN]):
        table = pa.Table.from_batches([batch])
        yield table.filter(pc.equal(table.column(SPLIT_COLUMN), SPLITS.index(split))).select(names)


def _outside(bins: Bins, test: Counts | None) -> float:
    return 0.0 if test is None else float(bins.num_outside(test) / (bins.values_of(test).sum() or 1))


def _score(name: str, values: NDArray[Any], classes: list[str] | None, weights: Weights | None) -> ReferenceColumn:
    if values.dtype.kind == "f":
        bins: Bins = numeric_bins(name, values)
        column = pa.array(values)
    else:
        bins = CategoricalBins(name=name, categories=[str(index) for index in range(len(classes or ()))])
        column = pa.array(values.astype(str), pa.string())
    weighted = None if weights is None else ReferenceColumn(
        bins=bins, counts=as_rows(bins.count(column, weights), weights)
    )  # fmt: skip
    return ReferenceColumn(bins=bins, counts=bins.count(column), weighted=weighted)
