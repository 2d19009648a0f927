"""An ensemble: the weighted mean of models, each trained by a job of its own in a subfolder.

The mean is of probabilities where the model tells classes or labels, else of what the models learnt.
Source: Caruana et al., Ensemble Selection from Libraries of Models (2004).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.errors import LooplineError
from models.files import write_json
from models.kinds.task import TASKS, PerLink, Task
from models.nets.catalogue import ENSEMBLE
from models.training.checkpoints.finished import identity
from models.training.costs.summary import total
from models.training.job import RESULT_FILE, TrainingJob, TrainingResult, begun
from models.training.search_space import FOLDS, MEMBERS, NET, WEIGHT, member_names, with_params

TURNS = 25
"""Turns of the selection, so that weights are multiples of 1/25."""
LEAST_WEIGHT = 0.1
"""A member with less is left out: it would cost as much as the others at each answer."""
CREDIBLE = 25
"""Examples on which chosen weights count as much as equal ones."""
LEAST_FALLBACK = 0.01
"""A naive forecast with less is left out: it changes nothing."""
TINY = float(np.finfo(np.float64).tiny)
"""Stands for a probability of zero, whose logarithm is not finite."""

Loss = Callable[[NDArray[np.float64]], float]
"""Of outputs (example, output): less is better; NaN is worst."""


@dataclass(frozen=True)
class Member:
    """One model of an ensemble: its name, by its family; its weight (all sum to 1); and its job."""

    name: str
    weight: float
    job: TrainingJob

    def of_fold(self, fold: int, folds: int) -> Member:
        """Return the model of its bag that is trained on all folds but `fold` of training and validation rows."""
        name = f"{self.name}-fold-{fold + 1}"
        train = self.job.train.model_copy(update={"refit": False})
        changed = {"folder": self.job.folder.with_name(name), "train": train, "fold": (fold, folds)}
        return Member(name, self.weight / folds, self.job.model_copy(update=changed))


def bags_of(job: TrainingJob) -> list[list[Member]]:
    """Return the models of each member of an ensemble's job: one, or one a fold; empty for any other job."""
    if job.model.net != ENSEMBLE:
        return []
    arguments, bags = dict(job.model.arguments), []
    settings, folds = arguments.pop(MEMBERS), arguments.pop(FOLDS, None)  # the other arguments are for each member
    for name, setting in zip(member_names([str(setting[NET]) for setting in settings]), settings, strict=True):
        params = {path: value for path, value in setting.items() if path != WEIGHT}
        model, train = with_params(job.model.model_copy(update={"arguments": arguments}), job.train, params)
        changed = {"folder": job.folder / MEMBERS / name, "model": model, "train": train}
        member = Member(name, float(setting[WEIGHT]), begun(job.model_copy(update=changed), job.start))
        bags.append([member.of_fold(fold, folds) for fold in range(folds)] if folds else [member])
    return bags


def members_of(job: TrainingJob) -> list[Member]:
    """Return the models of an ensemble's job; empty for any other job."""
    return [member for bag in bags_of(job) for member in bag]


def is_bagged(job: TrainingJob) -> bool:
    """Return whether the members of a job are bags, which together have learnt from the validation examples too."""
    return any(member.job.fold is not None for member in members_of(job))


def fit_members(
    job: TrainingJob, run: Callable[[str, TrainingJob], TrainingResult], value: Callable[[TrainingJob], float]
) -> TrainingResult:
    """Train the members of an ensemble one after the other; write and return the result of the whole.

    A member that is finished is read from its folder, so a killed ensemble goes on with the member that was trained.

    Args:
        job: Of the ensemble.
        run: Trains the member of this name, or returns its stored result.
        value: Returns the goal's metric of a finished job on validation, of first fits where members are refitted.

    Raises:
        LooplineError: The training of a member, which is named, failed.
    """
    results: dict[str, TrainingResult] = {}
    for member in members_of(job):
        try:
            results[member.name] = run(member.name, member.job)
        except LooplineError as error:
            error.args = (f"{member.name} of the ensemble: {error}",)  # a new error would lose the rank's traceback
            raise
    parts = list(results.values())
    hashes = "".join(f"{name} {result.weights_sha256}\n" for name, result in results.items())
    result = TrainingResult(
        best_epoch=0,
        value=value(job),
        epochs=[],
        weights_sha256=hashlib.sha256(hashes.encode()).hexdigest(),
        num_parameters=sum(part.num_parameters for part in parts),
        seconds=sum(part.seconds for part in parts),
        world_size=max(part.world_size for part in parts),
        threads=max(part.threads for part in parts),
        restarts=sum(part.restarts for part in parts),
        resumed_from=[step for part in parts for step in part.resumed_from],
        costs=total(part.costs for part in parts),
        speeds=[speed for part in parts for speed in part.speeds],
        members=results,
        environment={"job": identity(job)},
    )
    write_json(job.folder / RESULT_FILE, result.model_dump(mode="python"))
    return result


def weights_of(job: TrainingJob, result: TrainingResult) -> list[Path]:
    """Return the weights of a finished job: of an ensemble those of its members, of a refit those of both fits."""
    if result.members:
        return [path for member in members_of(job) for path in weights_of(member.job, result.members[member.name])]
    first = [job.validated.folder / result.weights] * job.is_refitted
    return [job.folder / result.weights, *first]


def selected(outputs: Mapping[str, NDArray[np.float64]], task: Task, loss: Loss) -> dict[str, float]:
    """Return the weights of the ensemble with the least loss that greedy selection finds, by name; they sum to 1.

    In each turn the model is added whose addition to the mean helps most; a model may be added again. The best mean of
    all turns counts, without members of less than `LEAST_WEIGHT`. Of models that are equally good the first is taken.

    Args:
        outputs: What each model gives for the same examples, float64 (example, output): logits, or standardised values.
        task: Of the data.
        loss: What the ensemble is to make small.
    """
    names, parts = list(outputs), [averaged(output, task) for output in outputs.values()]
    added: list[int] = []
    so_far, best = np.zeros_like(parts[0]), (np.inf, 0)
    for turn in range(1, TURNS + 1):
        losses = [loss(output_of((so_far + part) / turn, task)) for part in parts]
        added.append(int(np.argmin([np.inf if np.isnan(loss) else loss for loss in losses])))
        so_far = so_far + parts[added[-1]]
        best = min(best, (losses[added[-1]], turn))
    chosen = added[: best[1]] or added[:1]
    shares = {name: chosen.count(index) / len(chosen) for index, name in enumerate(names)}
    large = {name: share for name, share in shares.items() if share >= LEAST_WEIGHT}
    return {name: share / sum(large.values()) for name, share in large.items()}


def shrunk(weights: Mapping[str, float], fallback: str, num_examples: int) -> dict[str, float]:
    """Return chosen weights drawn to equal ones, of the members and a naive forecast, as few examples chose them.

    Of `n` examples the chosen weights count n / (n + `CREDIBLE`), equal ones the rest.
    Source: Buehlmann (1967), ASTIN Bulletin 4(3), credibility; towards equal weights as Stock and Watson (2004),
    Journal of Forecasting 23(6).

    Args:
        weights: Of `selected`.
        fallback: The name of the naive forecast, a member or not.
        num_examples: Validation examples that chose.
    """
    trust = num_examples / (num_examples + CREDIBLE)
    names = list(dict.fromkeys([*weights, fallback]))
    drawn = {name: trust * weights.get(name, 0.0) + (1 - trust) / len(names) for name in names}
    return drawn if fallback in weights or drawn[fallback] >= LEAST_FALLBACK else dict(weights)


def combined(outputs: Sequence[NDArray[np.float64]], weights: Sequence[float], task: Task) -> NDArray[np.float64]:
    """Return the outputs of an ensemble from those of its members, float64 (example, output)."""
    parts = [weight * averaged(output, task) for weight, output in zip(weights, outputs, strict=True)]
    mean: NDArray[np.float64] = np.sum(parts, axis=0)
    return output_of(mean, task)


def averaged(output: NDArray[np.float64], task: Task) -> NDArray[np.float64]:
    """Return in what form outputs are averaged: probabilities of classes (of a label: of 0 and 1), else themselves."""
    return _AVERAGED[TASKS[task].link](output)


def output_of(mean: NDArray[np.float64], task: Task) -> NDArray[np.float64]:
    """Return the output whose `averaged` form this is."""
    return _OUTPUTS[TASKS[task].link](mean)


def _both_probabilities(output: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.special import expit  # a training begins without it

    return np.stack([expit(-output), expit(output)])


def _probabilities(output: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.special import softmax  # a training begins without it

    return np.asarray(softmax(output, axis=1))


def _unchanged(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values


def _logit(mean: NDArray[np.float64]) -> NDArray[np.float64]:
    logits = _logits(mean)
    return np.asarray(logits[1] - logits[0])


def _logits(mean: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.log(np.maximum(mean, TINY)))


_AVERAGED: PerLink[Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "logistic": _both_probabilities,
    "softmax": _probabilities,
    "identity": _unchanged,
    "text": _unchanged,
}
_OUTPUTS: PerLink[Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "logistic": _logit,
    "softmax": _logits,
    "identity": _unchanged,
    "text": _unchanged,
}
