"""A set of hashes seen before, with eight bytes for each hash."""

from __future__ import annotations

import numpy as np

from models.data.hashing import Hashes


class SortedHashSet:
    """Stores hashes in sorted runs, each more than twice as long as the next: few runs to search, and few merges."""

    def __init__(self, *known: Hashes) -> None:
        self._runs: list[Hashes] = []
        for hashes in known:
            self.first_places(hashes)

    def new(self, hashes: Hashes) -> np.ndarray:
        """Return which of `hashes` are new (value,), and add them to the set."""
        chosen = np.zeros(len(hashes), dtype=bool)
        chosen[self.first_places(hashes)] = True
        return chosen

    def first_places(self, hashes: Hashes) -> np.ndarray:
        """Return the ascending positions in `hashes` of the first occurrence of each new hash, and store them."""
        unique, first = np.unique(hashes, return_index=True)
        new = np.ones(len(unique), dtype=bool)
        for run in self._runs:
            new &= run[np.minimum(run.searchsorted(unique), len(run) - 1)] != unique
        if new.any():
            self._remember(unique[new])
        places: np.ndarray = np.sort(first[new])
        return places

    def _remember(self, hashes: Hashes) -> None:
        self._runs.append(hashes)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]), kind="stable")
