"""Labelled predictions as rows of the next dataset; a saved summary is used while nothing has changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from models.feedback.columns import LABEL
from models.files import write_text
from models.frozen_model import FrozenModel
from tasks.state.predicted_ids import are_known, id_hashes
from tasks.state.predictions import label_store, labelled_ids, latest_labels, prediction_log

if TYPE_CHECKING:
    import pyarrow as pa

FILE = "feedback.json"
_SCORES = ("score", "scores", "origin")


class FeedbackSummary(FrozenModel):
    """The labelled predictions up to two cursors: their number, a hash of ids and labels, whether labels still wait."""

    predictions: int = 0
    labels: int = 0
    rows: int = 0
    digest: str = ""
    waiting: bool = False


def feedback_of(state: Path) -> FeedbackSummary:
    """Return the current summary. Reads two folder listings if no relevant label came; else the ids and the labels."""
    if not (state / "labels").is_dir():
        return FeedbackSummary()
    log, labels = prediction_log(state), label_store(state)
    summary, predictions, label_cursor = _read(state), log.cursor(), labels.cursor()
    if summary is not None and (summary.predictions > predictions or summary.labels > label_cursor):
        summary = None  # all predictions or labels were removed since: the summary is invalid
    if (
        summary is not None
        and summary.labels == label_cursor
        and (not summary.waiting or summary.predictions == predictions)
    ):
        return summary
    if summary is not None and not _any_labelled(state, summary.predictions, predictions):
        feedback = _with_later_labels(state, summary, predictions, label_cursor)
    else:
        feedback = _counted(state, predictions, label_cursor)
    write_text(state / FILE, feedback.model_dump_json() + "\n")
    return feedback


def labelled_rows(state: Path, feedback: FeedbackSummary, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Yield each labelled id's first prediction, without scores, with `label`, `labelled_at` and `by`, in log order.

    It is the first prediction so that a row of the dataset does not change when its id is predicted again.
    """
    from models.identity.hashing import SortedHashSet, hash_values

    seen, labels = SortedHashSet(), label_store(state)
    for table in prediction_log(state).scan(upto=feedback.predictions, columns=columns):
        rows = table.take(seen.first_places(hash_values(table.column("id"), "id")))
        latest = latest_labels(labels, rows.column("id"), feedback.labels)
        for name, column in zip(latest.column_names, latest.columns, strict=True):
            rows = rows.append_column(name, column)
        rows = rows.filter(latest.column(LABEL).is_valid())
        if rows.num_rows:
            yield rows.drop_columns([name for name in _SCORES if name in rows.column_names])


def _counted(state: Path, predictions: int, labels: int) -> FeedbackSummary:
    import numpy as np

    from models.identity.hashing import hash_rows

    upto, total, rows = FeedbackSummary(predictions=predictions, labels=labels), np.zeros(1, np.uint64), 0
    for table in labelled_rows(state, upto, ["id"]):
        total += hash_rows(table, ["id", LABEL]).sum(dtype=np.uint64)
        rows += table.num_rows
    waiting = rows < len(labelled_ids(label_store(state).scan(upto=labels, columns=["id", LABEL])))
    return upto.model_copy(update={"rows": rows, "digest": f"{int(total[0]):016x}", "waiting": waiting})


def _with_later_labels(state: Path, summary: FeedbackSummary, predictions: int, labels: int) -> FeedbackSummary:
    """Update the summary by the labels that came since; the predictions made since belong to ids without a label."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from models.identity.hashing import hash_rows

    store, total = label_store(state), np.array([int(summary.digest or "0", 16)], np.uint64)
    chunks = [chunk for table in store.scan(summary.labels, labels, ["id"]) for chunk in table.column("id").chunks]
    ids = pa.chunked_array([pc.unique(pa.chunked_array(chunks, pa.string()))])
    order = np.argsort(id_hashes(ids))
    ids = ids.take(order)
    before, after = (latest_labels(store, ids, upto).column(LABEL) for upto in (summary.labels, labels))
    predicted = are_known(prediction_log(state), id_hashes(ids))
    had, has = (predicted & labels.is_valid().to_numpy() for labels in (before, after))
    for texts, counted, add in ((before, had, False), (after, has, True)):
        table = pa.table({"id": ids, LABEL: texts}).filter(pa.array(counted))
        change = hash_rows(table, ["id", LABEL]).sum(dtype=np.uint64, keepdims=True)
        total = total + change if add else total - change
    return FeedbackSummary(
        predictions=predictions,
        labels=labels,
        rows=summary.rows + int(has.sum()) - int(had.sum()),
        digest=f"{int(total[0]):016x}",
        waiting=summary.waiting or not predicted.all(),
    )


def _any_labelled(state: Path, since: int, upto: int) -> bool:
    """Return whether one of the predictions made since belongs to an id that has a label."""
    labels = label_store(state)
    return any(
        latest_labels(labels, table.column("id")).column(LABEL).null_count < table.num_rows
        for table in prediction_log(state).scan(since, upto, ["id"])
    )


def _read(state: Path) -> FeedbackSummary | None:
    with contextlib.suppress(OSError, ValidationError):
        return FeedbackSummary.model_validate_json((state / FILE).read_text())
    return None
