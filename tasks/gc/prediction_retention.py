"""Retention of the prediction log and the label store: rows older than `monitor.keep_days` are dropped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tasks.state import label_index
from tasks.state.delta.delta_log import DeltaLog
from tasks.state.predicted_ids import are_known, id_hashes
from tasks.state.predictions import label_store, latest_labels, prediction_log

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

DAY_S = 86400


def cut_us(keep_days: int, now: float) -> int:
    """Return the retention limit in microseconds since 1970: the start of a UTC day, so that it moves once a day."""
    return (int(now) // DAY_S - keep_days) * DAY_S * 1_000_000


def forget_old(state: Path, before_us: int, *, spare_labelled: bool) -> int:
    """Drop old predictions and labels; return how many rows. Safe to kill at any moment and to repeat.

    Args:
        state: The project's state folder.
        before_us: Microseconds since 1970; see `cut_us`.
        spare_labelled: Keep predictions that have a label, and their labels: they are rows of the next dataset.

    Raises:
        StoreError: The disk is full; rows dropped so far stay dropped.
    """
    dropped = prediction_log(state).forget(before_us, (lambda old: _labelled(state, old)) if spare_labelled else None)
    labels = label_store(state)
    if not _reaches_back(labels, before_us):
        return dropped
    label_index.renew(labels.folder)
    dropped += labels.forget(before_us, (lambda old: _known(state, old)) if spare_labelled else None)
    label_index.renew(labels.folder)
    return dropped


def _reaches_back(labels: DeltaLog, before_us: int) -> bool:
    return any(part.times[0] < before_us for part in labels.parts())


def _labelled(state: Path, predictions: pa.Table) -> NDArray[np.bool_]:
    is_labelled = latest_labels(label_store(state), predictions.column("id")).column("label").is_valid()
    mask: NDArray[np.bool_] = is_labelled.to_numpy()
    return mask


def _known(state: Path, labels: pa.Table) -> NDArray[np.bool_]:
    import numpy as np

    hashes, places = np.unique(id_hashes(labels.column("id")), return_inverse=True)
    mask: NDArray[np.bool_] = are_known(prediction_log(state), hashes)[places]
    return mask
