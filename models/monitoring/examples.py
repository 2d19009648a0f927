"""The single predictions of a window, for the labels: key, score, label.

Windows of up to 50,000 predictions are stored completely, larger ones as a sample chosen by the hashes of the ids, so
that a label finds its prediction or is known to be outside the sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from models.identity.hashing import hash_values, unit_interval

MOST_MEASURED = 50_000

Keys = NDArray[np.uint64]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class KeyedPredictions:
    """Predictions by ascending key.

    Attributes:
        keys: (example,).
        prediction: (example,), or (example, class) or (example, output).
        label: (example,) class index or number, NaN while no label is known; of several outputs (example, output) once
            one is known.
    """

    keys: Keys
    prediction: Array
    label: Array

    @classmethod
    def empty(cls) -> KeyedPredictions:
        """Return an instance without predictions."""
        return cls(np.zeros(0, np.uint64), np.zeros(0), np.zeros(0))

    def with_more(self, keys: Keys, prediction: Array) -> KeyedPredictions:
        """Return a copy with further predictions, whose keys must be new."""
        all_keys = np.concatenate([self.keys, keys])
        order = np.argsort(all_keys, kind="stable")
        before = self.prediction if len(self.keys) else prediction[:0]
        label = np.concatenate([self.label, np.full((len(keys), *self.label.shape[1:]), np.nan)])
        return KeyedPredictions(all_keys[order], np.concatenate([before, prediction])[order], label[order])

    def with_labels(self, keys: Keys, label: Array) -> tuple[KeyedPredictions, NDArray[np.bool_]]:
        """Return a copy with the labels of known keys, and which keys are known (label,).

        Of several labels for one key the last one counts.
        """
        if not len(self.keys):
            return self, np.zeros(len(keys), dtype=bool)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        is_match = self.keys[place] == keys
        labels_now = self.label.copy()
        if label.ndim > labels_now.ndim:
            labels_now = np.full((len(self.keys), *label.shape[1:]), np.nan)
        labels_now[place[is_match]] = label[is_match]
        return KeyedPredictions(self.keys, self.prediction, labels_now), is_match

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """True for predictions that have a label, or that of every output."""
        return np.asarray(~np.isnan(self.label).reshape(len(self.keys), -1).any(axis=1))

    def to_bytes(self) -> bytes:
        """Return the predictions as safetensors, which hold numbers alone."""
        from safetensors.numpy import save

        parts = {"keys": self.keys, "prediction": self.prediction, "label": self.label}
        return bytes(save({name: np.ascontiguousarray(values) for name, values in parts.items()}))

    @classmethod
    def from_bytes(cls, content: bytes) -> KeyedPredictions:
        """Read the output of `to_bytes`."""
        from safetensors.numpy import load

        return cls(**load(content))


def keys_of(ids: pa.ChunkedArray) -> Keys:
    """Return a 64-bit key (row,) of each id."""
    return np.asarray(hash_values(ids, "id"))


def sampled(keys: Keys, window: int) -> NDArray[np.bool_]:
    """Return which keys are stored one by one, for windows with `window` predictions."""
    if window <= MOST_MEASURED:
        return np.ones(len(keys), dtype=bool)
    return np.asarray(unit_interval(keys) < MOST_MEASURED / window)
