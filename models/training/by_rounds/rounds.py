"""The training of what learns by rounds, such as boosted trees: epochs, early stopping, checkpoints, exact resume.

An epoch is an equal part of the rounds, at least one. A learner takes up its state after a kill; it says after which
rounds a training that does so ends with the same bits.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from models.data.preparation import Preparation
from models.distributed.order import share
from models.distributed.world import World
from models.files import write_bytes
from models.kinds.task import PerTask
from models.metrics.metrics import METRICS, Metric, metric_of
from models.nets.catalogue import row_of
from models.project_spec.references import call
from models.training.batches.example_set import ExampleSet
from models.training.batches.examples import open_examples
from models.training.checkpoints.checkpoint import CheckpointDraft, write_alone
from models.training.checkpoints.finished import identity, write_result
from models.training.checkpoints.state import Progress
from models.training.choices import cpu_despite_gpu
from models.training.costs.counters import device_clock, peak_memory_mb, reset_peak
from models.training.costs.summary import of_epochs
from models.training.job import EpochReport, TrainingJob, TrainingResult
from models.training.loop import Report, is_over
from models.training.model_choice import Decided, ValidationScore, as_array, decide, record, score
from models.training.optimisation.losses import Loss, make_loss, predictions
from models.training.session import last_checkpoint

CPU = torch.device("cpu")
STALE_ROUNDS = 50
"""Rounds without a better model after which a training stops. Source: LightGBM's examples of early stopping."""
ROWS_A_THREAD = 10_000
"""Below, threads wait for each other longer than they work (docs/decisions/0005). Source: LightGBM on num_threads."""
PLAIN_LOSS = {"class_weights": "none", "label_smoothing": 0.0}
"""The settings of the validation loss."""
_STATE, _BEST = "state", "best"
"""The tensors of a checkpoint: the learner's state, and that of the best epoch of a learner that cannot be cut."""


@dataclass(frozen=True)
class LearnerInputs:
    """What a learner is opened with."""

    job: TrainingJob
    preparation: Preparation
    metric: Metric
    train: ExampleSet
    validation: ExampleSet

    @classmethod
    def of(cls, job: TrainingJob) -> LearnerInputs:
        """Return the inputs of a job."""
        preparation = Preparation.load(job.prepared)
        metric = metric_of(job, preparation, job.project)
        return cls(job, preparation, metric, *open_examples(job, preparation))

    @property
    def threads(self) -> int:
        """The job's threads, but one for each `ROWS_A_THREAD` rows; the model is the same."""
        return max(1, min(self.job.threads, len(self.train) // ROWS_A_THREAD))

    def plain_loss(self) -> Loss:
        """Return the loss that validation and training rows are told by, whatever the model is learnt by."""
        plain = self.job.train.model_copy(update=PLAIN_LOSS)
        return make_loss(self.preparation, plain, self.metric.name, self.train.targets(), self.job.project)


class Learner(Protocol):
    """A model that grows by rounds, in one process."""

    @property
    def rounds(self) -> int:
        """All rounds; 1 where the library has none."""
        ...

    @property
    def can_cut(self) -> bool:
        """Whether `state` gives the model after an earlier round; else the state of the best evaluation is kept."""
        ...

    def resume(self, state: bytes, rounds: int) -> None:
        """Go on from a state after so many rounds."""
        ...

    def can_resume(self, rounds: int) -> bool:
        """Return whether a training that resumes after so many rounds ends with the same bits."""
        ...

    def looks(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of the rounds of an epoch; after each the validation examples are evaluated."""
        ...

    def grow(self, first: int, stop: int) -> None:
        """Learn rounds `first` to `stop`.

        Raises:
            TrainingError: The library refuses the data or an argument.
        """
        ...

    def outputs(self) -> NDArray[np.float64]:
        """Return the outputs for the validation examples after all rounds so far, float64 (example, output)."""
        ...

    def train_loss(self) -> float:
        """Return the mean loss of the training examples after all rounds so far."""
        ...

    def state(self, rounds: int | None = None) -> bytes:
        """Return the model after so many rounds, by default after all so far; equal models give equal bytes."""
        ...

    def values(self) -> dict[str, float]:
        """Return what an epoch reports beside the losses, such as the learning rate `lr`."""
        ...

    def num_parameters(self, state: bytes) -> int:
        """Return the number of learnt numbers in a state."""
        ...

    def environment(self) -> dict[str, Any]:
        """Return what else decides the bits: the library's version, and `parameters`."""
        ...


def fit_by_rounds(
    job: TrainingJob, report: Report, restarts: int, open_learner: Callable[[LearnerInputs], Learner]
) -> TrainingResult:
    """Train until the last round, early stopping or a stop by `report`. Runs in one process.

    Raises:
        UsageError: An argument is unknown, or the data is of another kind.
        TrainingError: The folder holds the checkpoints of another job, or the library rejects the data.
        StoreError: The disk is full or cannot be written.
    """
    reset_peak(CPU)
    inputs = LearnerInputs.of(job)
    training = _Training(inputs, open_learner(inputs))
    pruned, saver = False, _Saver(job)
    for progress in training.epochs():
        pruned = not report(EpochReport(epoch=progress.epoch, epochs=training.num_epochs, values=progress.history[-1]))
        if pruned or is_over(progress, training.num_epochs, job.train.patience) or training.is_stale():
            break
        if training.learner.can_resume(progress.step):
            saver.save(progress, training.stored)
    return training.finish(pruned, restarts)


class _Training:
    """A learner with its progress, which the newest checkpoint restores."""

    def __init__(self, inputs: LearnerInputs, learner: Learner) -> None:
        self.learner = learner
        self._inputs, self._job = inputs, inputs.job
        self._best: bytes | None = None
        self._progress = self._resume()
        self._evaluation = _Evaluation.of(inputs)
        self.num_epochs = min(self._job.train.epochs, learner.rounds)

    @property
    def _is_validated(self) -> bool:
        """Whether the validation rows choose the number of rounds; a refit learns from them."""
        return self._job.refit is None

    def _resume(self) -> Progress:
        last = last_checkpoint(self._job, World())
        if last is None:
            return Progress()
        from models.training.checkpoints.shards import StoredCheckpoint

        folder, meta = last
        stored = {name: part.numpy().tobytes() for name, part in StoredCheckpoint(folder).read().items()}
        progress = Progress(**meta["progress"])
        progress.resumed_from.append(progress.step)
        self.learner.resume(stored[_STATE], progress.step)
        self._best = stored.get(_BEST)
        return progress

    def stored(self) -> dict[str, bytes]:
        """Return what a checkpoint holds beside the progress."""
        best = {} if self._best is None else {_BEST: self._best}
        return {_STATE: self.learner.state(), **best}

    def epochs(self) -> Iterator[Progress]:
        """Learn the rounds of each remaining epoch, and yield the progress after it."""
        learner, progress = self.learner, self._progress
        while progress.epoch < self.num_epochs:
            start, device_start, first = time.perf_counter(), device_clock(CPU), progress.step
            _, stop = share(0, learner.rounds, progress.epoch, self.num_epochs)
            measured: dict[str, float] = {}
            for low, high in learner.looks(first, stop):
                learner.grow(low, high)
                if self._is_validated:
                    output = learner.outputs()
                    # Within the first epoch the outputs grow too much for the decision of its first rounds.
                    if low == first or not progress.epoch:
                        decided = self._evaluation.decide(output)
                    measured = self._evaluate(high, output, decided)
            progress.step, progress.epoch = stop, progress.epoch + 1
            if self._is_validated:
                measured = {"val_loss": self._evaluation.loss(learner.outputs()), **measured}
            else:
                progress.best_epoch, progress.best_round = progress.epoch, progress.step
            train_loss = learner.train_loss()
            seconds = max(time.perf_counter() - start, 1e-9)
            progress.seconds += seconds
            progress.history.append(
                {
                    "train_loss": train_loss,
                    **measured,
                    **learner.values(),
                    "samples_per_s": (stop - first) * len(self._inputs.train) / seconds,
                    "device_s": device_clock(CPU) - device_start,
                    "peak_memory_mb": peak_memory_mb(CPU),
                    "rounds": float(progress.step),
                }
            )
            yield progress

    def _evaluate(self, rounds: int, output: NDArray[np.float64], decided: Decided) -> dict[str, float]:
        """Return the score of the outputs after `rounds` rounds as values; record it, and the best state."""
        latest = self._evaluation.score(output, decided)
        is_best = record(self._progress, latest, self._job.direction, self._progress.epoch + 1, rounds)
        if is_best and not self.learner.can_cut:
            self._best = self.learner.state()
        return latest.values(self._inputs.metric.name)

    def is_stale(self) -> bool:
        """Return whether more rounds seem useless: early stopping, where the spec sets no `train.patience`."""
        if not self._is_validated or self._job.train.patience is not None:
            return False
        return self._progress.step - self._progress.improved_round >= STALE_ROUNDS

    def finish(self, pruned: bool, restarts: int) -> TrainingResult:
        """Write the weights of the best round, and the result."""
        job, progress, row = self._job, self._progress, row_of(self._job.model.net)
        best = self._best or self.learner.state(progress.best_round)
        write_bytes(job.folder / row.weights, best)
        return write_result(
            job,
            progress,
            weights=row.weights,
            weights_sha256=hashlib.sha256(best).hexdigest(),
            num_parameters=self.learner.num_parameters(best),
            restarts=restarts,
            pruned=pruned,
            costs=of_epochs(progress.history, "cpu"),
            environment={
                **self.learner.environment(),
                "chosen": cpu_despite_gpu(row.no_gpu),
                "rounds": progress.best_round,
                "train_examples": len(self._inputs.train),
                "validation_examples": len(self._inputs.validation),
            },
        )


@dataclass(frozen=True)
class _Evaluation:
    """What scores outputs for the validation examples (example, output)."""

    inputs: LearnerInputs
    values: NDArray[Any]
    weights: torch.Tensor | None
    mean_loss: Callable[[NDArray[np.float64]], float]

    @classmethod
    def of(cls, inputs: LearnerInputs) -> _Evaluation:
        loss, validation = inputs.plain_loss(), inputs.validation
        targets, weights, total = validation.targets(), validation.weights(), validation.total_weight

        def mean_loss(output: NDArray[np.float64]) -> float:
            return float(loss(torch.from_numpy(output), targets, weights)) / total

        return cls(inputs, validation.values(), weights, mean_loss)

    def loss(self, output: NDArray[np.float64]) -> float:
        """Return the mean loss; of a ranking 1 - NDCG."""
        return _LOSSES[self.inputs.preparation.task](output, self)

    def decide(self, output: NDArray[np.float64]) -> Decided:
        """Return how the model of these outputs decides. Cost: a calibration, which would dominate after each look."""
        preparation, metric = self.inputs.preparation, self.inputs.metric
        return decide(metric, preparation.task, self.values, self._predicted(output), as_array(self.weights))

    def score(self, output: NDArray[np.float64], decided: Decided) -> ValidationScore:
        """Return the score of outputs that are decided as `decided`."""
        task, metric = self.inputs.preparation.task, self.inputs.metric
        arrays = self.values, self._predicted(output), as_array(self.weights)
        latest: ValidationScore = call(score, metric.name, metric, task, *arrays, decided)
        return latest

    def _predicted(self, output: NDArray[np.float64]) -> NDArray[np.float64]:
        return predictions(torch.from_numpy(output), self.inputs.preparation)


def _mean_loss(output: NDArray[np.float64], evaluation: _Evaluation) -> float:
    return evaluation.mean_loss(output)


def _one_minus_ndcg(output: NDArray[np.float64], evaluation: _Evaluation) -> float:
    return 1 - METRICS["ndcg"].value(evaluation.values, output[:, 0])


_LOSSES: PerTask[Callable[[NDArray[np.float64], _Evaluation], float]] = {
    "binary": _mean_loss,
    "multiclass": _mean_loss,
    "multilabel": _mean_loss,
    "regression": _mean_loss,
    "quantile": _mean_loss,
    "ranking": _one_minus_ndcg,
    "language": _mean_loss,
}


class _Saver:
    """Writes checkpoints as often as the job's share of the time allows."""

    def __init__(self, job: TrainingJob) -> None:
        self._job = job
        self._since, self._cost_s = time.perf_counter(), 0.0

    def save(self, progress: Progress, stored: Callable[[], dict[str, bytes]]) -> None:
        """Write a checkpoint of what `stored` returns, if one is due."""
        job, start = self._job, time.perf_counter()
        if not job.allows_checkpoint(start - self._since, self._cost_s):
            return
        meta = {"progress": asdict(progress), "job": identity(job)}
        tensors = {name: torch.frombuffer(bytearray(part), dtype=torch.uint8) for name, part in stored().items()}
        write_alone(CheckpointDraft(job.checkpoint_folder, progress.step, meta), tensors)
        self._since = time.perf_counter()
        self._cost_s = self._since - start
