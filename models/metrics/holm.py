"""Holm's correction of p-values for multiple testing; scipy has only those of the false discovery rate."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Apply Holm's step-down correction: the probability of any false alarm stays below the level. None is left out.

    Source: Holm (1979), Scandinavian Journal of Statistics 6.
    """
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for step, (p_value, index) in enumerate(tested):
        highest = max(highest, min(1.0, p_value * (len(tested) - step)))
        corrected[index] = highest
    return corrected
