"""The shifts of an export's quantiles, so that they cover what they state, chosen on validation rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.data.preparation import Preparation
from models.export.trained import held_out_examples
from models.metrics.calibration import MOST_EXAMPLES
from models.metrics.evaluator import effective_number
from models.metrics.metrics import metric_of, quantiles_of
from models.metrics.regression import sample_quantiles
from models.training.job import TrainingJob
from models.training.optimisation.losses import ordered_quantiles


def choose_quantile_shifts(job: TrainingJob, preparation: Preparation) -> tuple[Preparation, dict[str, Any]]:
    """Return the preparation with the shift of each quantile, and the facts for the record and the card.

    Each quantile is shifted by that quantile of its own errors on validation rows, so that the stated share of further
    values lies below it. Of a refitted model the errors are the first fit's, of a bag those of all rows by the models
    of the other folds. Models without quantiles stay as they are.

    Source: Romano, Patterson and Candes (2019), Conformalized Quantile Regression, with an error for each quantile.
    Cost: a pass over these rows, at most `MOST_EXAMPLES`.
    """
    levels = quantiles_of(preparation.outputs, metric_of(job, preparation, job.project).name)
    if not levels:
        return preparation, {}
    examples = held_out_examples(job, preparation, MOST_EXAMPLES)
    learnt = examples.outputs if preparation.outputs else examples.outputs[:, 0]
    errors = preparation.target.encode(examples.target) - ordered_quantiles(learnt, preparation.target)
    errors = errors.reshape(len(errors), -1)
    stated = np.resize(levels, errors.shape[1]).tolist()
    shifts = [_shift(errors[:, index], level, examples.weight) for index, level in enumerate(stated)]
    record = {
        "names": [output.name for output in preparation.outputs] or [preparation.target.name],
        "levels": stated,
        "num_examples": len(errors),
        "shifts": shifts,
        "share_below": np.average(errors <= 0, axis=0, weights=examples.weight).tolist(),
    }
    return preparation.model_copy(update={"quantile_shifts": shifts}), {"quantile_shifts": record}


def _shift(errors: np.ndarray, level: float, weight: np.ndarray | None) -> float:
    """Return the conformal shift of one quantile; where the rows are too few for its level, it only widens."""
    shift = float(sample_quantiles(errors, level, weight)[0])
    num = len(errors) if weight is None else effective_number(weight)
    if (num + 1) * level < 1:
        return min(shift, 0.0)
    return max(shift, 0.0) if (num + 1) * (1 - level) < 1 else shift
