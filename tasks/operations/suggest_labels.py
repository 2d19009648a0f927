"""Suggests labels: the unlabelled predictions whose labels would teach the model most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from models.data.preparation import ROWS_FILE, Preparation
from models.data.prepared_rows import rows_of
from models.errors import DataError, UsageError
from models.feedback.active_learning import (
    CANDIDATES,
    CELL,
    choose_novel,
    choose_uncertain,
    positions,
    thinned,
    uncertainty,
)
from models.feedback.columns import INPUT, LABEL, RAW
from models.files import whole_file
from models.identity.hashing import hash_values
from models.kinds.task import PerTask, refusal
from models.monitoring.tally import predictions_of
from models.project_spec.blocks import Spec
from models.sources.row_batches import concatenated, sized
from tasks.host.workspace import Project
from tasks.mlflow.model_cache import CachedModel, cached_version
from tasks.state.ingest_segments import receive
from tasks.state.predictions import joined

PIECE = 4096
"""Predictions that are compared at a time: many near-duplicates in one piece displace no other candidates."""
SURE_STEP = 0.05
"""Images whose probabilities differ by less than this count as near-duplicates."""
POOL = 20_000
"""Unlabelled rows that are compared for a regression, sampled by the hashes of their ids."""
KNOWN = 5_000
"""Labelled rows that the unlabelled rows are compared with."""


def ask(project: Project, spec: Spec, count: int) -> dict[str, Any]:
    """Choose `count` predictions of the champion for a person to label.

    Args:
        project: The project whose prediction log is read.
        spec: The project's spec.
        count: Maximum number of predictions.

    Raises:
        UsageError: This kind of model does not learn from single labels, or there is no champion.
        DataError: There is no unlabelled prediction.

    Returns:
        `table`: id, the input columns of the rows, and an empty `label` column, in the format of `loopline label`;
        `of`: the number of unlabelled predictions; `method`: a description.
    """
    if spec.data.kind in ("series", "text"):
        raise UsageError(
            f"{spec.name}: a {spec.data.kind} does not learn from single labels: add newer data at the source, and run "
            "the loop"
        )
    if len(spec.data.targets) > 1:
        raise UsageError(
            f"{spec.name}: rows to label are suggested by one class or number a row, and this model has several: label "
            "rows of your choice with `loopline label`"
        )
    if reason := refusal(spec.data.task, "suggest_labels"):
        raise UsageError(f"{spec.name}: {reason}")

    cached = cached_version(project.workspace, spec.name)
    preparation = Preparation.load(cached.folder)
    receive(project.state(spec.name))
    rule = SUGGESTIONS[preparation.task]
    pool, num_rows, chosen = rule.choose(project, spec, cached, preparation, count)
    return {"table": _shown(pool.take(chosen), spec), "of": num_rows, "method": rule.method}


def _uncertain(
    project: Project, spec: Spec, cached: CachedModel, preparation: Preparation, count: int
) -> tuple[pa.Table, int, np.ndarray]:
    """Choose the most uncertain predictions that differ from each other, in one streaming pass over the log."""

    def points(rows: pa.Table) -> np.ndarray:
        is_table = preparation.kind == "table"
        return positions(rows, preparation, INPUT) if is_table else _chances(rows) * (CELL / SURE_STEP)

    best: pa.Table | None = None
    num_rows = 0
    for table in sized(_unlabelled(project.state(spec.name), cached), PIECE):
        num_rows += table.num_rows
        candidates = table if best is None else concatenated([best, table])
        best = candidates.take(thinned(uncertainty(_chances(candidates)), points(candidates))[: CANDIDATES * count])
    if best is None:
        raise _nothing(cached)
    return best, num_rows, choose_uncertain(uncertainty(_chances(best)), points(best), count)


def _novel(
    project: Project, spec: Spec, cached: CachedModel, preparation: Preparation, count: int
) -> tuple[pa.Table, int, np.ndarray]:
    state = project.state(spec.name)
    pool: pa.Table | None = None
    num_rows = 0
    for table in _unlabelled(state, cached):
        num_rows += table.num_rows
        rows = table if pool is None else concatenated([pool, table])
        pool = rows.take(np.sort(np.argsort(hash_values(rows.column("id"), "id"))[:POOL]))
    if pool is None:
        raise _nothing(cached)
    labelled, values = _labelled(state, project, spec, preparation)
    both = concatenated([pool.select(labelled.column_names), labelled])
    points = positions(both, preparation, INPUT)
    predicted = _middle(pool, preparation)
    return pool, num_rows, choose_novel(points[: len(predicted)], predicted, points[len(predicted) :], values, count)


def _middle(pool: pa.Table, preparation: Preparation) -> np.ndarray:
    """Return the number that is predicted for each row (row,); of quantiles the one nearest to the median."""
    values = predictions_of(pool, preparation.task).reshape(pool.num_rows, -1)
    levels = [output.quantile or 0.5 for output in preparation.outputs] or [0.5]
    middle: np.ndarray = values[:, np.argmin(np.abs(np.array(levels) - 0.5))]
    return middle


class Suggestion(NamedTuple):
    """How rows of a task are suggested: the function that chooses them, and the name of the method."""

    choose: Callable[[Project, Spec, CachedModel, Preparation, int], tuple[pa.Table, int, np.ndarray]]
    method: str


_LEAST_SURE = Suggestion(_uncertain, "the least sure by margin, made diverse by weighted k-means (Zhdanov 2019)")
_FARTHEST = Suggestion(_novel, "far from what is labelled, in inputs and prediction (iGS, Wu et al. 2019)")
SUGGESTIONS: PerTask[Suggestion] = {
    "binary": _LEAST_SURE,
    "multiclass": _LEAST_SURE,
    "multilabel": _LEAST_SURE,
    "regression": _FARTHEST,
    "quantile": _FARTHEST,
    "language": _LEAST_SURE,
    "ranking": _LEAST_SURE,
}


def _labelled(state: Path, project: Project, spec: Spec, preparation: Preparation) -> tuple[pa.Table, np.ndarray]:
    """Return inputs and labels of some training rows and of labelled predictions."""
    names = preparation.columns
    inputs = [f"{INPUT}{name}" for name in names]
    tables, values = [], [np.zeros(0)]
    path = project.prepared / ROWS_FILE
    if path.is_file() and set(names) | {spec.data.target_name} <= set(pq.read_schema(path).names):
        rows = rows_of(project.prepared, "train", [*names, spec.data.target_name])
        rows = rows.take(np.linspace(0, rows.num_rows - 1, min(KNOWN, rows.num_rows)).astype(np.int64))
        tables.append(rows.select(names).rename_columns(inputs))
        values.append(rows.column(spec.data.target_name).to_numpy())
    num_left = KNOWN
    for table in joined(state, columns=inputs, labelled=True):
        rows = table.slice(0, num_left)
        if set(inputs) <= set(rows.column_names):
            tables.append(rows.select(inputs))
            values.append(rows.column(LABEL).cast(pa.float64()).to_numpy())
            num_left -= rows.num_rows
    if not tables:
        schema = {f"{INPUT}{name}": pa.float64() for name in preparation.number_columns}
        schema |= {f"{INPUT}{name}": pa.string() for name in preparation.text_columns}
        return pa.table({name: pa.array([], kind) for name, kind in schema.items()}), values[0]
    return concatenated(tables).select(inputs), np.concatenate(values)


def _unlabelled(state: Path, cached: CachedModel) -> Iterator[pa.Table]:
    """Yield the champion's unlabelled predictions; those of earlier versions say less about its uncertainty."""
    for table in joined(state, versions=[cached.number]):
        rows = table.filter(pc.is_null(table.column(LABEL)))
        if rows.num_rows:
            yield rows


def _chances(table: pa.Table) -> np.ndarray:
    if table.column("scores").null_count == table.num_rows:
        positive: np.ndarray = table.column("score").to_numpy()
        return np.stack([1.0 - positive, positive], axis=1)
    scores: np.ndarray = np.array(table.column("scores").to_pylist(), dtype=np.float64)
    return scores


def _shown(rows: pa.Table, spec: Spec) -> pa.Table:
    """Return ids, input columns and an empty label column, without columns of bytes, which CSV cannot hold."""
    columns = {"id": rows.column("id")}
    for prefix in (INPUT, RAW):
        for name in rows.column_names:
            kind = rows.schema.field(name).type
            if name.startswith(prefix) and not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
                columns.setdefault(name.removeprefix(prefix), _without_nan(rows.column(name)))
    columns.pop(spec.data.target_name, None)
    columns[LABEL] = pa.nulls(rows.num_rows, pa.string())
    return pa.table(columns)


def _without_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.is_nan(column), None, column) if pa.types.is_floating(column.type) else column


def _nothing(cached: CachedModel) -> DataError:
    return DataError(
        f"version {cached.number} has made no prediction that is without a label: `loopline predict` makes some to ask "
        "about"
    )


def write_csv(table: pa.Table, to: Path | BinaryIO) -> None:
    """Write a table as CSV, to a file atomically or to a stream."""
    if not isinstance(to, Path):
        csv.write_csv(table, to)
        return
    with whole_file(to) as temporary:
        csv.write_csv(table, temporary)
