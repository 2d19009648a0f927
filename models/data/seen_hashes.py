"""Which hashes were seen before, in eight bytes each."""

from __future__ import annotations

import numpy as np

from models.data.hashing import Hashes


class SortedHashSet:
    """Remembers hashes in sorted runs, each more than twice as long as the next: few to look into, seldom merged."""

    def __init__(self, *known: Hashes) -> None:
        self._runs: list[Hashes] = []
        for hashes in known:
            self.first_places(hashes)

    def new(self, hashes: Hashes) -> np.ndarray:
        """Which of `hashes` come for the first time (value,); they are known from now on."""
        chosen = np.zeros(len(hashes), dtype=bool)
        chosen[self.first_places(hashes)] = True
        return chosen

    def first_places(self, hashes: Hashes) -> np.ndarray:
        """Places in `hashes`, ascending, of those that never came before, here or in an earlier call."""
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
