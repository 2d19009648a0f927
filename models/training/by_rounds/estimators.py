"""The fit of an estimator by reference, such as `sklearn.ensemble:ExtraTreesClassifier` or `./boosted.py:FAMILY`.

An epoch is so many rounds from the bytes of the epoch before, with a seed of its own, so a training that was killed
goes on with the same bits, also where rows or columns are drawn. A library without rounds learns in one epoch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from models.data.preparation import Preparation
from models.distributed.order import seed_of
from models.errors import UsageError
from models.estimators.inputs import Matrix, input_plan
from models.estimators.learner import Fit, OutputRows, cut, grown, raw_outputs
from models.estimators.libraries import Functions, functions_of
from models.estimators.rows import EstimatorRow
from models.estimators.source import installed_versions, row_of_source
from models.estimators.stored import StoredEstimator, pack, unpack
from models.kinds.task import TASKS, Link, PerLink
from models.metrics.metrics import quantile_of
from models.training.batches.examples import open_examples
from models.training.by_rounds.output_rows import LabelSettings, labels
from models.training.by_rounds.rounds import LearnerInputs, fit_by_rounds
from models.training.job import TrainingJob, TrainingResult
from models.training.loop import Report
from models.training.model_choice import as_array
from models.training.optimisation.losses import loss_name
from models.training.tree_inputs import TreeInputs, tree_inputs

_CLASSES: PerLink[Any] = {
    "logistic": lambda preparation: 2,
    "softmax": lambda preparation: preparation.num_outputs,
    "identity": lambda preparation: 0,
    "text": lambda preparation: 0,
}
"""The number of classes that the model of an output tells apart; 0 for a number."""


def fit_estimator(job: TrainingJob, report: Report, restarts: int = 0) -> TrainingResult:
    """Fit an estimator until the last round, early stopping or a stop by `report`. Runs in one process.

    Raises:
        UsageError: The library is missing, or the estimator does not learn what the goal asks for.
        UserCodeError: The library or the team's own row raised.
        TrainingError: The estimator's graph is another than the estimator.
        StoreError: The disk is full or cannot be written.
    """
    return fit_by_rounds(job, report, restarts, open_estimator)


def estimator_outputs(job: TrainingJob, preparation: Preparation, positions: NDArray[Any]) -> NDArray[np.float64]:
    """Return logits, scores of classes or standardised numbers for validation examples (example, output)."""
    inputs = tree_inputs(open_examples(job, preparation)[1], preparation, torch.from_numpy(positions))
    fitted = FittedEstimator.of(job.model.net, job.project, preparation)
    return fitted.outputs(unpack(job.read_weights()), inputs)


@dataclass(frozen=True)
class FittedEstimator:
    """How the outputs of a model come from what its estimators answer."""

    row: EstimatorRow
    functions: Functions
    link: Link
    num_classes: int
    """Of each output; 0 for a number."""

    @classmethod
    def of(cls, net: str, base: Path, preparation: Preparation) -> FittedEstimator:
        """Return that of a reference; `base` is the folder of the spec.

        Raises:
            UsageError: The library is missing.
            UserCodeError: The team's own row raised on import.
        """
        row, link = row_of_source(net, base), TASKS[preparation.task].link
        functions = functions_of(row, net, base)
        return cls(row, functions, link, _CLASSES[link](preparation))

    def outputs(self, stored: StoredEstimator, inputs: TreeInputs) -> NDArray[np.float64]:
        """Return logits, scores of classes or standardised numbers (example, output)."""
        raw = raw_outputs(self.functions, self.row.output, stored, self.link, self.num_classes, inputs.features)
        return inputs.output(raw)


def open_estimator(inputs: LearnerInputs) -> EstimatorLearner:
    """Return the learner of a job.

    Raises:
        UsageError: The library is missing, or the estimator learns no quantile.
        UserCodeError: The team's own row raised on import.
    """
    job, preparation, metric = inputs.job, inputs.preparation, inputs.metric.name
    fitted = FittedEstimator.of(job.model.net, job.project, preparation)
    row, loss = fitted.row, loss_name(preparation.task, preparation.target, metric)
    targets, weights = inputs.train.targets(), inputs.train.weights()
    train = tree_inputs(inputs.train, preparation)
    arguments = {**row.defaults, **job.model.arguments}
    rounds = int(arguments.pop("rounds", row.num_rounds))
    fit = Fit(
        functions=fitted.functions,
        plan=input_plan(row, train.features, preparation.cardinalities, as_array(weights)),
        task=preparation.task,
        loss=loss,
        arguments=arguments,
        threads=inputs.threads,
    )
    quantiles = _quantiles(preparation, metric)
    if any(quantile is not None for quantile in quantiles) and not row.quantile:
        raise UsageError(f"model.net: {job.model.net} learns no quantile: take another estimator, or goal.metric mae")
    settings = LabelSettings(preparation, loss, job.train.class_weights == "balanced")
    rows = [
        OutputRows(label, weight if row.weights else None, fitted.num_classes, quantile)
        for (label, weight), quantile in zip(
            labels(settings, targets, weights, train), itertools.cycle(quantiles), strict=False
        )
    ]
    plain = inputs.plain_loss()

    def train_loss(stored: StoredEstimator) -> float:
        output = torch.from_numpy(fitted.outputs(stored, train))
        return float(plain(output, targets, weights)) / inputs.train.total_weight

    validation = tree_inputs(inputs.validation, preparation)
    return EstimatorLearner(job, fitted, fit, Rows(train.features, rows, validation, train_loss), rounds)


class Rows(NamedTuple):
    """The rows of a fit.

    Attributes:
        features: Of the training rows (row, input).
        outputs: What the model of each output learns.
        validation: Of the validation rows.
        train_loss: Returns the mean loss of the training rows.
    """

    features: Matrix
    outputs: Sequence[OutputRows]
    validation: TreeInputs
    train_loss: Callable[[StoredEstimator], float]


class EstimatorLearner:
    """The learner of an estimator, as `models/training/by_rounds/rounds.py` drives it.

    Args:
        job: The job.
        fitted: How outputs come from the estimators.
        fit: What does not change while they learn.
        rows: What they learn from and are judged by.
        rounds: All rounds; 1 of a library without.
    """

    def __init__(self, job: TrainingJob, fitted: FittedEstimator, fit: Fit, rows: Rows, rounds: int) -> None:
        self.rounds = rounds
        self.can_cut = fit.functions.first is not None
        self._job, self._fitted, self._fit, self._rows = job, fitted, fit, rows
        self._stored: StoredEstimator | None = None
        self._outputs: NDArray[np.float64] | None = None

    def resume(self, state: bytes, rounds: int) -> None:
        """Go on from a state after so many rounds."""
        del rounds
        self._stored = unpack(state)

    def can_resume(self, rounds: int) -> bool:
        """Return True: each epoch begins from bytes."""
        del rounds
        return True

    def looks(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the whole epoch: its rounds are learnt at once."""
        yield first, stop

    def grow(self, first: int, stop: int) -> None:
        """Learn rounds `first` to `stop`, with a seed of their own.

        Raises:
            UserCodeError: The library or the team's own row raised.
            TrainingError: The estimator's graph is another than the estimator.
        """
        seed = seed_of("estimator", self._job.train.seed, first) % 2**31
        self._outputs = None
        self._stored = grown(self._fit, self._rows.features, self._rows.outputs, self._stored, stop - first, seed)

    def outputs(self) -> NDArray[np.float64]:
        """Return the outputs for the validation examples after all rounds so far, float64 (example, output)."""
        if self._outputs is None:
            self._outputs = self._fitted.outputs(self._so_far, self._rows.validation)
        return self._outputs

    def train_loss(self) -> float:
        """Return the mean loss of the training examples after all rounds so far."""
        return self._rows.train_loss(self._so_far)

    def state(self, rounds: int | None = None) -> bytes:
        """Return the model after so many rounds, by default after all so far; equal models give equal bytes."""
        first = self._fit.functions.first
        return pack(self._so_far if rounds is None or first is None else cut(first, self._so_far, rounds))

    def values(self) -> dict[str, float]:
        """Return nothing: an epoch of an estimator reports its losses alone."""
        return {}

    def num_parameters(self, state: bytes) -> int:
        """Return the bytes of the models: no library counts its learnt numbers."""
        return sum(len(output.model) for output in unpack(state).outputs)

    def environment(self) -> dict[str, Any]:
        """Return the library's version, the arguments, and the models of a round: one for each of several classes."""
        arguments = {**self._fit.arguments, **self._fitted.row.fixed, "threads": self._fit.threads}
        models = sum(rows.num_classes if rows.num_classes > 2 else 1 for rows in self._rows.outputs)
        versions, net = installed_versions(self._fitted.row), self._job.model.net
        return {**versions, "class": net, "parameters": arguments, "models": models}

    @property
    def _so_far(self) -> StoredEstimator:
        assert self._stored is not None, "an epoch was learnt"
        return self._stored


def _quantiles(preparation: Preparation, metric: str) -> list[float | None]:
    """Return the quantile that each output learns; the outputs take them in turn."""
    level = quantile_of(metric)
    return [level] if level is not None else [output.quantile for output in preparation.target.outputs] or [None]
