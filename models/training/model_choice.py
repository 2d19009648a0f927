"""The choice among checkpoints, rounds and trials: the goal decides, and within its noise the log loss.

A goal such as roc_auc or accuracy does not see whether the probabilities are any good: on few validation rows its best
value may come from the first round, before any example is predicted positive. The log loss sees it, but alone it stops
too early where a goal still improves while the net becomes overconfident. So the model with the least log loss is
chosen among those whose goal is within its noise of the best goal so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from models.kinds.task import TASKS, PerTask, Task
from models.metrics import classification
from models.metrics.bootstrap import draws
from models.metrics.calibration import PlattScaling, fit_calibration
from models.metrics.decisions import best_decision, has_own_decision, label_thresholds
from models.metrics.metrics import Array, Metric

if TYPE_CHECKING:
    import torch

    from models.training.checkpoints.state import Progress

Direction = Literal["maximize", "minimize"]

NOISE = 0.2
"""Share of the goal's standard error within which the log loss decides.

Two models of one training share most of their errors, so their difference varies less than either value.
Source: measured by simulation, docs/decisions/0030.
"""
RESAMPLES = 24
OWN_RESAMPLES = 8
"""Fewer for a metric of the user's own, which may be slow."""
MOST_EXAMPLES = 5000
"""The standard error is measured on at most so many examples; it is scaled to all of them."""
FEWEST_EXAMPLES = 1000
"""Fewest examples of many classes or labels that a calibration is fitted on, if there are as many."""
LOG_LOSS = "val_log_loss"
_PROPER = frozenset({"log_loss", "brier"})


class ValidationScore(NamedTuple):
    """The quality of one model on the validation examples.

    Attributes:
        goal: The value of the goal's metric.
        noise: Its standard error; 0 where only the goal decides.
        log_loss: Mean log loss in nats; NaN where only the goal decides.
    """

    goal: float
    noise: float = 0.0
    log_loss: float = float("nan")

    def values(self, metric: str) -> dict[str, float]:
        """Return the score as an epoch's values: `val_<metric>`, with `val_<metric>_se` and `val_log_loss`."""
        goal = {f"val_{metric}": self.goal}
        return goal if math.isnan(self.log_loss) else {**goal, f"val_{metric}_se": self.noise, LOG_LOSS: self.log_loss}

    @classmethod
    def of(cls, values: Mapping[str, float], metric: str) -> ValidationScore:
        """Return the score in an epoch's values."""
        names = (f"val_{metric}_se", LOG_LOSS)
        rest = [values[name] for name in names] if names[0] in values else []
        return cls(values[f"val_{metric}"], *rest)


class Decided(NamedTuple):
    """How the exported model will decide: calibrated, by the goal's best decision.

    Attributes:
        metric: The goal's metric of these decisions.
        calibration: None where probabilities stay as they are.
    """

    metric: Metric
    calibration: PlattScaling | None = None

    def apply(self, prediction: Array) -> Array:
        """Return predictions as the metric takes them."""
        return prediction if self.calibration is None else self.calibration.apply(prediction)


def score(
    metric: Metric,
    task: Task,
    target: Array,
    prediction: Array,
    weight: Array | None = None,
    decided: Decided | None = None,
) -> ValidationScore:
    """Return the score of predictions; only the goal counts if it is proper itself, as all errors of numbers are.

    The goal is measured as the exported model will decide: as `decided` for an earlier state of the model, or, if None,
    as `decide` finds for these predictions. A metric of the user's own sees no weights.

    Raises:
        UserCodeError: Your own metric raised, or returned no finite number.
    """
    log_loss = float("nan")
    if TASKS[task].has_classes and metric.name not in _PROPER:
        log_loss = classification.log_loss(target, prediction)(np.ones(len(target)) if weight is None else weight)
    decided = decided or decide(metric, task, target, prediction, weight)
    metric, prediction = decided.metric, decided.apply(prediction)
    goal = float(metric.value(target, prediction, weight if metric.takes_weights else None))
    return (
        ValidationScore(goal)
        if math.isnan(log_loss)
        else ValidationScore(goal, standard_error(metric, target, prediction, weight), log_loss)
    )


def decide(metric: Metric, task: Task, target: Array, prediction: Array, weight: Array | None = None) -> Decided:
    """Return how the exported model will decide: calibrated, by the goal's best decision.

    Nothing changes unless the goal depends on the decision. Labels stay uncalibrated, as the graph gives them.

    Cost: a calibration of `MOST_EXAMPLES`; with more classes or labels of fewer, so that it takes as long.
    """
    if not has_own_decision(metric, task):
        return Decided(metric)
    limit = max(FEWEST_EXAMPLES, 2 * MOST_EXAMPLES // (prediction.shape[1] if prediction.ndim > 1 else 2))
    stride = -(-len(target) // limit)
    some = None if weight is None else weight[::stride]
    return _DECIDED[task](metric, task, (target[::stride], prediction[::stride], some), prediction, weight)


def _calibrated(metric: Metric, task: Task, sample: _Sample, prediction: Array, weight: Array | None) -> Decided:
    calibration = fit_calibration(*sample)
    return Decided(metric.at(best_decision(metric.name, task, calibration.apply(prediction), weight)), calibration)


def _by_label(metric: Metric, task: Task, sample: _Sample, prediction: Array, weight: Array | None) -> Decided:
    return Decided(metric.at(label_thresholds(metric.name, *sample)))


def _undecided(metric: Metric, task: Task, sample: _Sample, prediction: Array, weight: Array | None) -> Decided:
    return Decided(metric)


_Sample = tuple[Array, Array, Array | None]
"""Targets, predictions and weights that a decision is fitted on."""
_DECIDED: PerTask[Callable[[Metric, Task, _Sample, Array, Array | None], Decided]] = {
    "binary": _calibrated,
    "multiclass": _calibrated,
    "multilabel": _by_label,
    "regression": _undecided,
    "quantile": _undecided,
    "language": _undecided,
    "ranking": _undecided,
}


def as_array(weights: torch.Tensor | None) -> Array | None:
    """Return weights as metrics take them, float64 (example,)."""
    return None if weights is None else weights.double().numpy()


def standard_error(metric: Metric, target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Return the bootstrap's standard error of a metric; 0 where it is undefined.

    Source: Efron and Tibshirani (1993), An Introduction to the Bootstrap, ch. 6: 25 resamples suffice for it.

    Cost: `RESAMPLES` evaluations on at most `MOST_EXAMPLES` examples.
    """
    stride = -(-len(target) // MOST_EXAMPLES)
    some, predicted = target[::stride], prediction[::stride]
    evaluate = metric.weighted(some, predicted, None if weight is None else weight[::stride])
    resamples = RESAMPLES if metric.takes_weights else OWN_RESAMPLES
    values = np.array([evaluate(drawn) for drawn in draws(len(some), resamples)])
    values = values[np.isfinite(values)]
    return float(values.std(ddof=1) * math.sqrt(len(some) / len(target))) if len(values) > 1 else 0.0


def is_better(value: float, than: float, direction: str) -> bool:
    """Return whether `value` is a number and is better than `than`, or `than` is NaN."""
    if math.isnan(value) or math.isnan(than):
        return not math.isnan(value)
    return value > than if direction == "maximize" else value < than


def should_replace(
    candidate: ValidationScore, chosen: ValidationScore, best_goal: ValidationScore, direction: Direction
) -> bool:
    """Return whether the candidate replaces the chosen model.

    Args:
        candidate: The new model's score.
        chosen: The score of the model that is chosen so far.
        best_goal: The score with the best goal so far, the candidate's included.
        direction: Of the goal.
    """
    if math.isnan(candidate.log_loss) or math.isnan(best_goal.goal):
        return is_better(candidate.goal, chosen.goal, direction)
    if not _is_within_noise(candidate, best_goal, direction):
        return False
    return not _is_within_noise(chosen, best_goal, direction) or not candidate.log_loss >= chosen.log_loss


def record(progress: Progress, latest: ValidationScore, direction: Direction, epoch: int, rounds: int = 0) -> bool:
    """Record the score of the current model in `progress`; return whether this model is now the chosen one.

    Args:
        progress: Changed in place.
        latest: The score of the current model.
        direction: Of the goal.
        epoch: The current epoch, from 1 on.
        rounds: The number of rounds of trees; 0 for nets.
    """
    is_first = not progress.best_epoch
    if is_first or is_better(latest.goal, progress.goal_value, direction):
        progress.goal_value, progress.goal_noise = latest.goal, latest.noise
        progress.improved_epoch, progress.improved_round = epoch, rounds
    chosen = ValidationScore(progress.best_value, progress.best_noise, progress.best_log_loss)
    best_goal = ValidationScore(progress.goal_value, progress.goal_noise)
    if not is_first and not should_replace(latest, chosen, best_goal, direction):
        return False
    progress.best_value, progress.best_noise, progress.best_log_loss = latest
    progress.best_epoch = progress.improved_epoch = epoch
    progress.best_round = progress.improved_round = rounds
    return True


def choose(scores: Sequence[ValidationScore], direction: Direction) -> int:
    """Return the position of the chosen model; the earlier one wins a tie.

    Args:
        scores: At least one.
        direction: Of the goal.
    """
    best = 0
    for position, score in enumerate(scores):
        if is_better(score.goal, scores[best].goal, direction):
            best = position
    chosen = best
    for position, score in enumerate(scores):
        fits = _is_within_noise(score, scores[best], direction)
        if fits and (score.log_loss, position) < (scores[chosen].log_loss, chosen):
            chosen = position
    return chosen


def _is_within_noise(score: ValidationScore, best: ValidationScore, direction: str) -> bool:
    behind = best.goal - score.goal if direction == "maximize" else score.goal - best.goal
    return behind <= NOISE * best.noise
