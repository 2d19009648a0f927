"""The predictions of a version on its test rows, stored with it, for when it is the best champion so far."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from models.identity.hashing import Hashes
from models.metrics.metrics import Array

PREDICTIONS_FILE = "predictions.npz"


class StoredPredictions(NamedTuple):
    """Predictions in the form for metrics, with the identity of the data that they are of.

    Attributes:
        prepared: The digest of the prepared data.
        rows: The identity of each example's row, uint64 (example,); empty for a text.
        target: True values; first axis: examples.
        prediction: Predictions; first axis: examples.
    """

    prepared: str
    rows: Hashes
    target: Array
    prediction: Array

    def save(self, path: Path) -> None:
        """Write them to a file of plain arrays."""
        np.savez(path, prepared=self.prepared, rows=self.rows, target=self.target, prediction=self.prediction)

    @classmethod
    def load(cls, path: Path) -> StoredPredictions | None:
        """Return the predictions of a file; None if there is none, as of a version from before they were stored."""
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as arrays:
            return cls(str(arrays["prepared"]), arrays["rows"], arrays["target"], arrays["prediction"])

    def on(self, rows: Hashes, target: Array) -> tuple[Array, Array] | None:
        """Return the predictions of other test examples, and which of them have any, bool (example,).

        None if none has, or if the same row has another true value here: then its number is that of another row.

        Args:
            rows: The identity of each example's row (example,).
            target: Their true values; first axis: examples.
        """
        order = np.argsort(self.rows, kind="stable")
        places = np.searchsorted(self.rows[order], rows)
        is_stored = places < len(order)
        is_stored[is_stored] = self.rows[order[places[is_stored]]] == rows[is_stored]
        if not is_stored.any():
            return None
        stored_rows = order[places[is_stored]]
        if self.target.shape[1:] != target.shape[1:] or not np.array_equal(self.target[stored_rows], target[is_stored]):
            return None
        prediction = np.zeros((len(rows), *self.prediction.shape[1:]), dtype=self.prediction.dtype)
        prediction[is_stored] = self.prediction[stored_rows]
        return prediction, is_stored
