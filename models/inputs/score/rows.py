"""Normal scores as inputs: of the columns of numbers whose training values have heavy tails."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pyarrow as pa

from models import scratch
from models.inputs.raw_rows import KindRows, LearntInputs, RawRows, Tensors
from models.inputs.record import LearntFiles
from models.inputs.score.record import ScoreInput

NUM_KNOTS = 64
"""Between so many quantiles of a lognormal column the lines stray by less than .05 from its scores."""
HEAVY = 2.0
"""A column has heavy tails if its deviation is more than twice that of a normal column with its quartiles."""
_QUARTILES_APART = 1.349
"""The quartiles of a normal distribution, in its deviations."""


def fit_score(name: str, values: np.ndarray) -> ScoreInput | None:
    """Return the score of a column; None if its training values (rows,), NaN for missing, have no heavy tails.

    A value that is several quantiles has the mean of their ranks: ties stand in the middle of their rows.
    """
    present = scratch.chosen(values, ~np.isnan(values))
    low, high = np.percentile(present, [25, 75])
    with np.errstate(over="ignore", invalid="ignore"):
        if not high > low or not scratch.deviation(present) > HEAVY * (high - low) / _QUARTILES_APART:
            return None
    ranks = (np.arange(NUM_KNOTS) + 0.5) / NUM_KNOTS
    knots, places, counts = np.unique(np.quantile(present, ranks), return_inverse=True, return_counts=True)
    means, normal = np.bincount(places, weights=ranks) / counts, NormalDist()
    return ScoreInput(
        name=f"rank of {name}", of=name, knots=knots.tolist(), scores=[normal.inv_cdf(mean) for mean in means]
    )


def encode_score(values: np.ndarray, part: ScoreInput) -> np.ndarray:
    """Return the scores of numbers (rows,), float32; a missing one has 0."""
    scores = np.interp(values, part.knots, part.scores)
    return np.where(np.isnan(values), 0.0, scores).astype(np.float32)


def _fit(names: Sequence[str], rows: RawRows, learnt: LearntInputs) -> list[ScoreInput]:
    """Return the scores of the numbers that were learnt before; they have no columns of their own: `names` is empty."""
    del names
    numbers = [name for name in learnt.columns.of("numeric") if name in learnt.prepared]
    scores = [fit_score(name, scratch.chosen(learnt.prepared[name].to_numpy(), rows.train)) for name in numbers]
    return [score for score in scores if score is not None and score.name not in learnt.prepared]


def _values(column: pa.ChunkedArray, part: ScoreInput) -> pa.ChunkedArray:
    del part
    return column


def _encode(rows: pa.Table, parts: Sequence[ScoreInput], files: LearntFiles) -> Tensors:
    del files
    return {"numeric": np.stack([encode_score(rows.column(part.of).to_numpy(), part) for part in parts], axis=1)}


ROWS = KindRows(
    fit=_fit,
    values=_values,
    encode=_encode,
)
