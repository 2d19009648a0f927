"""Label ingest: the only way by which labels get into the label store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.feedback.columns import LABEL
from tasks.state.delta.delta_log import DeltaLog
from tasks.state.predicted_ids import id_hashes
from tasks.state.predictions import LABELLED_AT, count_known, label_store, latest_labels


def take_in(state: Path, labels: pa.Table) -> dict[str, int]:
    """Add labels with `add_labels`, and count those that wait for their prediction.

    Returns:
        The counts of `add_labels`, and `waiting`: added ids that have no prediction yet.

    Cost: one look-up per id, however many predictions there are (`are_known`).
    """
    new, counts = add_labels(state, labels)
    ids = np.unique(id_hashes(new.column("id"))) if new.num_rows else np.zeros(0, np.uint64)
    return {**counts, "waiting": len(ids) - count_known(state, ids)}


def add_labels(state: Path, labels: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """Add the new labels durably, all of them or none; repeated labels add nothing. Call it within `moving`.

    Args:
        state: The project's state folder.
        labels: `id`, `label`, `at` and `by`, with valid labels; an id may have several, in the order of arrival.

    Raises:
        StoreError: The disk is full; nothing was added.

    Returns:
        The added labels, and counts: `taken`: added labels; `corrected`: those among them that replace another label;
        `repeated`: labels that are not stored, because they are known already or older than the known label.

    Cost: one look-up per id (`latest_labels`), however many labels there are.
    """
    new, corrected = new_labels(state, labels)
    label_store(state).append(new)
    counts = {"taken": new.num_rows, "corrected": corrected, "repeated": labels.num_rows - new.num_rows}
    return new, counts


def new_labels(state: Path, labels: pa.Table) -> tuple[pa.Table, int]:
    """Return those labels that `add_labels` would add, and how many of them replace another label."""
    places, corrected = _new(labels, label_store(state)) if labels.num_rows else (np.zeros(0, np.int64), 0)
    return labels.take(pa.array(places, pa.int64())), corrected


def _new(labels: pa.Table, store: DeltaLog) -> tuple[np.ndarray, int]:
    """Return the positions of the new labels, and how many of them replace another label."""
    stored = latest_labels(store, labels.column("id"))
    before, since = stored.column(LABEL), stored.column(LABELLED_AT)
    if pc.count_distinct(labels.column("id")).as_py() < labels.num_rows:
        return _new_one_by_one(labels, before.to_pylist(), since.cast(pa.int64()).to_pylist())
    withdrawn = pc.and_(pc.is_valid(since), pc.is_null(before))
    same = pc.fill_null(pc.equal(labels.column(LABEL), before), pc.and_(withdrawn, pc.is_null(labels.column(LABEL))))
    older = pc.fill_null(pc.less(labels.column("at"), since), False)
    places = np.flatnonzero(~pc.or_(same, older).to_numpy())
    return places, len(places) - before.take(pa.array(places, pa.int64())).null_count


def _new_one_by_one(labels: pa.Table, before: list[str | None], since: list[int | None]) -> tuple[np.ndarray, int]:
    latest: dict[str, tuple[str | None, int]] = {}
    places, corrected = [], 0
    columns = (labels.column("id"), labels.column(LABEL), labels.column("at").cast(pa.int64()))
    for place, (row_id, label, labelled_at) in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
        stored, when = latest.get(row_id, (before[place], since[place] or labelled_at))
        if label == stored or labelled_at < when:
            continue
        latest[row_id] = label, labelled_at
        places.append(place)
        corrected += stored is not None
    return np.array(places, np.int64), corrected
