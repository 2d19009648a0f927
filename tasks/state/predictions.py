"""The prediction log, the label store, and their join.

Both are Delta tables (`DeltaLog`) in a project's state, `project.state(spec.name)`: `predictions/` and `labels/`.

| `predictions/` | type | is |
|---|---|---|
| `id` | text | the client's id, or a generated one (UUIDv7); a repeated id means a repeated prediction |
| `at` | timestamp[us, UTC] | time of the prediction |
| `version` | text | version of the registered model |
| `origin` | text | `batch` or `serve` |
| `score` | float64 | binary: probability of the positive class; regression: prediction; else null |
| `scores` | list<float64> | multiclass: probabilities in the order of the target's classes; else null |
| `input.NAME` | float64 or text | tables: an input of the graph; text is "" for a missing value |
| `raw.NAME` | its own type | a column of the request's row that is not an input of the graph as it is |
| `given.NAME` | text or binary | logged while there is a shadow: the text; a feature's window, float64 |

| `labels/` | type | is |
|---|---|---|
| `id` | text | id of a prediction, which may come later than the label |
| `label` | text | the class, or the number in digits that read back exactly |
| `at` | timestamp[us, UTC] | time of arrival |
| `by` | text | source of the label |

Of several labels of an id, the last one to arrive counts. Versions may have different inputs: a column that
a version lacks is null, and a column whose type changed is text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.feedback.columns import INPUT as INPUT
from models.feedback.columns import LABEL as LABEL
from models.feedback.columns import LABELLED_AT as LABELLED_AT
from models.feedback.columns import RAW as RAW
from tasks.state import label_index
from tasks.state.delta.delta_log import DeltaLog
from tasks.state.predicted_ids import are_known, id_hashes

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_BLOCK_ROWS = 1 << 18
"""Predictions that are joined in one step."""


def prediction_log(state: Path) -> DeltaLog:
    """Return the prediction log of the project whose state folder is `state`."""
    import pyarrow as pa

    fields = {**_common(), "version": pa.string(), "origin": pa.string()}
    return DeltaLog(
        state / "predictions", pa.schema({**fields, "score": pa.float64(), "scores": pa.list_(pa.float64())})
    )


def label_store(state: Path) -> DeltaLog:
    """Return the label store of the project whose state folder is `state`."""
    import pyarrow as pa

    return DeltaLog(state / "labels", pa.schema({**_common(), LABEL: pa.string(), "by": pa.string()}))


def joined(
    state: Path,
    *,
    columns: Sequence[str] | None = None,
    versions: Sequence[str] | None = None,
    labelled: bool = False,
) -> Iterator[pa.Table]:
    """Yield predictions with their labels, by the time of the prediction; each (id, version) only the first time.

    Labels are joined by id, whether they came before or after the prediction.

    Args:
        state: The project's state folder.
        columns: Columns of the prediction log; `id`, `at` and `version` are always included. Default: all.
        versions: Include only predictions of these versions.
        labelled: Include only predictions that have a label.

    Returns:
        Tables with `label` (text; null for none) and `labelled_at` (timestamp) beside the columns.

    Cost: memory for about half a million rows, and eight bytes for each prediction; time linear in the number of
    predictions (see `latest_labels`).
    """
    from models.sources.row_batches import sized

    selected = None if columns is None else list(dict.fromkeys(["id", "at", "version", *columns]))
    log, labels = prediction_log(state), label_store(state)
    upto = labels.cursor()
    rows = log.in_time_order(None, None, selected)
    tables = (_labelled(block, labels, upto, labelled) for block in sized(_once(rows, versions), _BLOCK_ROWS))
    yield from (table for table in tables if table.num_rows)


def latest_labels(labels: DeltaLog, ids: pa.ChunkedArray, upto: int | None = None) -> pa.Table:
    """Return for each id its last `label`, the time of arrival (`labelled_at`), and the source (`by`); null for none.

    Cost: one look-up in the index per id; if the store has few labels per requested id, all labels are read.

    Args:
        labels: The label store.
        ids: The ids; the result has one row for each.
        upto: A cursor of the store; labels after it are ignored.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    upto = labels.cursor() if upto is None else upto
    indexed = label_index.latest(labels, ids.to_pylist(), upto)
    if indexed is not None:
        columns = list(zip(*((None, None, None) if label is None else label for label in indexed), strict=True))
        return _label_table(*(columns or [(), (), ()]))
    latest = {name: np.full(len(ids), None, dtype=object) for name in (LABEL, "at", "by")}
    for table in labels.scan(upto=upto, columns=["id", *latest], batch=_BLOCK_ROWS):
        last_first = table.take(np.arange(table.num_rows)[::-1])
        place = pc.index_in(ids, last_first.column("id"))
        has_label = place.is_valid().to_numpy()
        chosen = last_first.take(place.drop_null())
        for name, values in latest.items():
            column = chosen.column(name)
            values[has_label] = column.cast(pa.int64()).to_numpy() if name == "at" else column.to_numpy()
    return _label_table(latest[LABEL], latest["at"], latest["by"])


def _label_table(labels: Any, times: Any, givers: Any) -> pa.Table:
    import pyarrow as pa

    labelled_at = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return pa.table(
        {LABEL: pa.array(labels, pa.string()), LABELLED_AT: labelled_at, "by": pa.array(givers, pa.string())}
    )


def new_labels(state: Path, since: float) -> int:
    """Return how many predictions were labelled since `since` (Unix time, seconds): the policy's `Past.new_labels`.

    Each id counts once; a label counts only if its prediction is known.
    """
    labels = label_store(state).in_time_order(round(since * 1e6), None, ["id", LABEL])
    return count_known(state, labelled_ids(labels))


def count_known(state: Path, hashes: np.ndarray) -> int:
    """Return how many of these ids (sorted `id_hashes`) have a prediction; see `are_known`."""
    return int(are_known(prediction_log(state), hashes).sum())


def labelled_ids(labels: Iterable[pa.Table]) -> np.ndarray:
    """Return the sorted `id_hashes` of the labelled ids, without ids whose last label is a withdrawal.

    Args:
        labels: Tables with `id` and `label`, in the order of arrival.

    Cost: nine bytes per label.
    """
    import numpy as np

    hashes, valid = [np.zeros(0, np.uint64)], [np.zeros(0, bool)]
    for table in labels:
        hashes.append(id_hashes(table.column("id")))
        valid.append(table.column(LABEL).is_valid().to_numpy())
    ids, last = np.unique(np.concatenate(hashes)[::-1], return_index=True)
    unique: np.ndarray = ids[np.concatenate(valid)[::-1][last]]
    return unique


def _labelled(block: pa.Table, labels: DeltaLog, upto: int, only: bool) -> pa.Table:
    matches = latest_labels(labels, block.column("id"), upto)
    table = block.append_column(LABEL, matches.column(LABEL)).append_column(LABELLED_AT, matches.column(LABELLED_AT))
    return table.filter(matches.column(LABEL).is_valid()) if only else table


def _once(tables: Iterator[pa.Table], versions: Sequence[str] | None) -> Iterator[pa.Table]:
    """Yield only the first prediction of each (id, version)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from models.identity.hashing import SortedHashSet, hash_rows

    seen = SortedHashSet()
    selected = None if versions is None else pa.array(list(versions), pa.string())
    for block in tables:
        table = block if selected is None else block.filter(pc.is_in(block.column("version"), selected))
        first = seen.first_places(hash_rows(table, ["id", "version"]))
        if len(first):
            yield table.take(first)


def _common() -> dict[str, Any]:
    import pyarrow as pa

    return {"id": pa.string(), "at": pa.timestamp("us", tz="UTC")}
