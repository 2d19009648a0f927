"""Counts of predictions by column and score; they replace the rows and are merged by addition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.kinds.task import PerTask, Task
from models.monitoring.histogram import Counts, NumericBins, as_numbers, measured
from models.monitoring.reference import Reference

INPUT = "input."
SCORE = "score."
Bounds = Mapping[str, tuple[float | None, float | None]]
"""Smallest and largest allowed value of each column."""


@dataclass(frozen=True)
class PredictionCounts:
    """Counts of some predictions.

    Attributes:
        num_rows: Number of predictions.
        counts: `input.NAME` and `score.NAME` -> counts in the layout of the column's bins.
        broken: `input.NAME` -> number of values outside the column's bounds.
    """

    num_rows: int = 0
    counts: Mapping[str, Counts] = field(default_factory=dict)
    broken: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other_counts: PredictionCounts) -> PredictionCounts:
        return PredictionCounts(
            self.num_rows + other_counts.num_rows,
            _sum(self.counts, other_counts.counts),
            _sum(self.broken, other_counts.broken),
        )

    def to_bytes(self) -> bytes:
        """Return the counts as safetensors, which hold numbers alone."""
        from safetensors.numpy import save

        tensors: dict[str, Any] = {f"counts.{name}": np.ascontiguousarray(array) for name, array in self.counts.items()}
        tensors |= {f"broken.{name}": np.array([count], dtype=np.int64) for name, count in self.broken.items()}
        return bytes(save({**tensors, "rows": np.array([self.num_rows], dtype=np.int64)}))

    @classmethod
    def from_bytes(cls, content: bytes) -> PredictionCounts:
        """Read the output of `to_bytes`."""
        from safetensors.numpy import load

        tensors = load(content)
        named = {
            prefix: {
                name.removeprefix(f"{prefix}."): tensor
                for name, tensor in tensors.items()
                if name.startswith(f"{prefix}.")
            }
            for prefix in ("counts", "broken")
        }
        broken = {name: int(tensor[0]) for name, tensor in named["broken"].items()}
        return cls(int(tensors["rows"][0]), named["counts"], broken)


def tally(table: pa.Table, reference: Reference, bounds: Bounds | None = None) -> PredictionCounts:
    """Count rows of a prediction log.

    Args:
        table: `input.NAME` for each column that it has, `score` or `scores`.
        reference: The version's reference. Columns that the table lacks count as missing.
        bounds: Allowed ranges of numeric columns.

    Cost: about 60 ns for each value; memory: a few columns of the table's length.
    """
    counts: dict[str, Counts] = {}
    broken: dict[str, int] = {}
    names = set(table.column_names)
    for column in reference.columns:
        name, bins = INPUT + column.name, column.bins
        values = table.column(name) if name in names else pa.nulls(table.num_rows, pa.string())
        if not isinstance(bins, NumericBins):
            counts[name] = bins.count(values)
            continue
        numbers = measured(values, bins.of)
        counts[name] = bins.count_numbers(numbers)
        if bounds and column.name in bounds:
            broken[name] = _num_outside(numbers, bounds[column.name])
    counts |= _count_scores(table, reference) if reference.scores else {}
    return PredictionCounts(table.num_rows, counts, broken)


def predictions_of(table: pa.Table, task: Task) -> NDArray[np.float64]:
    """Return the predictions of a log's rows in the form for metrics: (row,), or (row, class) or (row, output)."""
    return MONITORED[task].predictions(table)


def scores_of(prediction: NDArray[np.float64], task: Task, outputs: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Return the values watched for drift: the score itself, or for many classes the top class and its probability.

    Of several outputs: each by its name.
    """
    return MONITORED[task].scores(prediction, outputs)


def _logged(table: pa.Table) -> NDArray[np.float64]:
    is_wide = "scores" in table.column_names and table.column("scores").null_count < table.num_rows
    return _logged_lists(table) if is_wide else as_numbers(table.column("score"))


def _logged_lists(table: pa.Table) -> NDArray[np.float64]:
    scores = table.column("scores").combine_chunks()
    flat: NDArray[np.float64] = pc.list_flatten(scores).to_numpy(zero_copy_only=False)
    return flat.reshape(table.num_rows, -1) if table.num_rows else np.zeros((0, 1))


def _of_classes(prediction: NDArray[np.float64], outputs: Sequence[str]) -> dict[str, NDArray[Any]]:
    del outputs
    return {"confidence": prediction.max(axis=1), "class": prediction.argmax(axis=1)}


def _of_outputs(prediction: NDArray[np.float64], outputs: Sequence[str]) -> dict[str, NDArray[Any]]:
    return dict(zip(outputs, prediction.T, strict=True)) if prediction.ndim > 1 else {"score": prediction}


class Monitored(NamedTuple):
    """What is monitored of a task's predictions: how they are read from a log's rows, and what of them may drift."""

    predictions: Callable[[pa.Table], NDArray[np.float64]]
    scores: Callable[[NDArray[np.float64], Sequence[str]], dict[str, NDArray[Any]]]


_OUTPUTS = Monitored(_logged, _of_outputs)
MONITORED: PerTask[Monitored] = {
    "binary": _OUTPUTS,
    "multiclass": Monitored(_logged_lists, _of_classes),
    "multilabel": _OUTPUTS,
    "regression": _OUTPUTS,
    "quantile": _OUTPUTS,
    "language": _OUTPUTS,
    "ranking": _OUTPUTS,
}


def _count_scores(table: pa.Table, reference: Reference) -> dict[str, Counts]:
    names = [column.name for column in reference.scores]
    scores = scores_of(predictions_of(table, reference.task), reference.task, names)
    values = {
        name: pa.array(column if column.dtype.kind == "f" else column.astype(str)) for name, column in scores.items()
    }
    return {SCORE + column.name: column.bins.count(values[column.name]) for column in reference.scores}


def _num_outside(values: NDArray[np.float64], bounds: tuple[float | None, float | None]) -> int:
    low, high = bounds
    under = int((values < low).sum()) if low is not None else 0
    return under + (int((values > high).sum()) if high is not None else 0)


def _sum(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: first[name] + second[name] if name in first and name in second else first.get(name, second.get(name))
        for name in {**first, **second}
    }
