"""The fit of a convex model in one process and one epoch: L-BFGS over all training rows, judged on validation.

There are no learning rate, no batches and no checkpoints: a fit that was killed begins again from zero and ends with
the same bits. It holds the training rows in memory.
Source: Nocedal and Wright, Numerical Optimization, algorithm 7.5; the penalty is scikit-learn's, with l2 = 1 / C.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import nn

from models.data.preparation import Preparation
from models.errors import TrainingError, UsageError
from models.files import storing
from models.kinds.task import TASKS
from models.metrics.metrics import Metric, metric_of
from models.metrics.ranking import groups_of
from models.nets.catalogue import row_of
from models.nets.linear import Linear
from models.project_spec.references import call
from models.training.batches.example_set import ExampleSet
from models.training.batches.examples import LARGEST_PASS, open_examples
from models.training.checkpoints.finished import write_result
from models.training.checkpoints.state import Progress
from models.training.checkpoints.weights import save_weights
from models.training.choices import cpu_despite_gpu
from models.training.costs.counters import device_clock, peak_memory_mb, reset_peak
from models.training.costs.summary import of_epochs
from models.training.job import WEIGHTS_FILE, EpochReport, TrainingJob, TrainingResult
from models.training.loop import Report
from models.training.model_choice import ValidationScore, as_array, record, score
from models.training.optimisation.listwise import listwise_loss
from models.training.optimisation.losses import Loss, make_loss, predictions
from models.training.optimisation.optimisers import uncompiled
from models.training.search_course import without_blocks

CPU = torch.device("cpu")
_HISTORY = 10
_TOLERANCE_GRADIENT = 1e-5
_TOLERANCE_CHANGE = 1e-7


class Losses(NamedTuple):
    """The loss of the training and of the validation examples, and the most examples of a pass."""

    train: Loss
    validation: Loss
    largest_pass: int = LARGEST_PASS


@dataclass(frozen=True)
class ConvexFit:
    """What a fit reads and is judged by; `began` is when it was opened, by the wall's and the device's clock."""

    job: TrainingJob
    preparation: Preparation
    metric: Metric
    train: ExampleSet
    validation: ExampleSet
    losses: Losses
    began: tuple[float, float]

    @classmethod
    def open(cls, job: TrainingJob) -> Self:
        """Open the examples of a job."""
        reset_peak(CPU)
        began = time.perf_counter(), device_clock(CPU)
        preparation = Preparation.load(job.prepared)
        train, validation = open_examples(job, preparation)
        metric = metric_of(job, preparation, job.project)
        losses_of = _group_losses if TASKS[preparation.task].is_grouped else _losses
        losses = losses_of(job, preparation, metric.name, (train, validation))
        return cls(job, preparation, metric, train, validation, losses, began)

    def scored(self, net: nn.Module) -> tuple[ValidationScore, float]:
        """Return the score of a net on the validation examples, and its mean loss."""
        output, val_loss = evaluate(net, self.validation, self.losses.validation, self.losses.largest_pass)
        predicted = predictions(output, self.preparation)
        examples = (self.validation.values(), predicted, as_array(self.validation.weights()))
        return call(score, self.metric.name, self.metric, self.preparation.task, *examples), val_loss

    def goals(self, net: nn.Module) -> list[float]:
        """Return the goal's values without each block of the validation examples."""
        output, _ = evaluate(net, self.validation, self.losses.validation, self.losses.largest_pass)
        predicted, weights = predictions(output, self.preparation), as_array(self.validation.weights())
        metric = self.metric.weighted(self.validation.values(), predicted, weights)
        return [call(metric, self.metric.name, drawn) for drawn in without_blocks(len(self.validation))]

    def finish(
        self,
        net: nn.Module,
        scored: tuple[ValidationScore, float],
        train_loss: float,
        chosen: dict[str, Any],
        report: Report,
        restarts: int,
    ) -> TrainingResult:
        """Write the weights of a fitted net and the result of the job.

        Args:
            net: With its final weights.
            scored: What it reached on validation.
            train_loss: Its mean loss of the training rows.
            chosen: What the fit chose, and further facts of it.
            report: Hears the only epoch.
            restarts: Of the process.

        Raises:
            StoreError: The disk is full or cannot be written.
        """
        latest, val_loss = scored
        seconds, device_s = time.perf_counter() - self.began[0], device_clock(CPU) - self.began[1]
        num_train = len(self.train)
        values = {"train_loss": train_loss, "val_loss": val_loss, **latest.values(self.metric.name)}
        values |= {"samples_per_s": num_train / max(seconds, 1e-9), "device_s": device_s}
        progress = Progress(
            epoch=1, step=1, history=[values | {"peak_memory_mb": peak_memory_mb(CPU)}], seconds=seconds
        )
        record(progress, latest, self.job.direction, 1)
        pruned = not report(EpochReport(epoch=1, epochs=1, values=progress.history[0]))
        environment = {
            "torch": str(torch.__version__),
            "chosen": cpu_despite_gpu(row_of(self.job.model.net).no_gpu),
            "threads": torch.get_num_threads(),
            "train_examples": num_train,
            "validation_examples": len(self.validation),
        }
        return write_result(
            self.job,
            progress,
            weights=WEIGHTS_FILE,
            weights_sha256=_save(net, self.job.folder),
            num_parameters=sum(parameter.numel() for parameter in net.parameters()),
            restarts=restarts,
            pruned=pruned,
            costs=of_epochs(progress.history, "cpu"),
            environment={**environment, **chosen},
        )


def settings_of(arguments: dict[str, Any], penalties: Sequence[float]) -> tuple[list[float], int]:
    """Return the penalties that are tried, by default `penalties`, and the iterations.

    Raises:
        UsageError: One is out of range.
    """
    l2, iterations = arguments.get("l2", 0.0), arguments.get("iterations", 100)
    for name, value, lowest in (("l2", l2, 0), ("iterations", iterations, 1)):
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value < lowest:
            raise UsageError(f"model.arguments.{name}: got {value!r}, expected a number of at least {lowest}")
    return [float(l2)] if "l2" in arguments else list(penalties), int(iterations)


def minimise(net: Linear, train: ExampleSet, loss: Loss, l2: float, iterations: int) -> float:
    """Fit the weights to the mean loss and `l2 / 2n` times their squares; return the mean loss of the training rows."""
    positions = torch.arange(len(train))
    inputs, target, weight = train.inputs(), train.gather_target(positions), train.gather_weight(positions)
    optimiser = uncompiled(torch.optim.LBFGS)(
        net.parameters(),
        max_iter=iterations,
        history_size=_HISTORY,
        tolerance_grad=_TOLERANCE_GRADIENT,
        tolerance_change=_TOLERANCE_CHANGE,
        line_search_fn="strong_wolfe",
    )

    def objective() -> torch.Tensor:
        net.zero_grad()
        total = (loss(net(**inputs), target, weight) + l2 / 2 * net.penalty()) / len(train)
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimiser.step(objective)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        mean = float(loss(net(**inputs), target, weight)) / train.total_weight
    if not torch.tensor(mean).isfinite():
        raise TrainingError(f"train_loss is not finite after the fit: got {mean}: look at the data, or raise model.l2")
    return mean


@torch.no_grad()
def evaluate(net: nn.Module, examples: ExampleSet, loss: Loss, size: int = LARGEST_PASS) -> tuple[torch.Tensor, float]:
    """Return the outputs (examples, num_outputs) and the mean loss, from passes of `size` examples."""
    outputs, total = [], 0.0
    for positions in torch.split(torch.arange(len(examples)), size):
        outputs.append(net(**examples.gather(positions)))
        total += float(loss(outputs[-1], examples.gather_target(positions), examples.gather_weight(positions)))
    return torch.cat(outputs), total / examples.total_weight


def _save(net: nn.Module, folder: Path) -> str:
    """Write the net's weights into a job's folder; return their hash."""
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return save_weights(folder / WEIGHTS_FILE, net.state_dict())


def _losses(job: TrainingJob, preparation: Preparation, metric: str, sides: Sequence[ExampleSet]) -> Losses:
    settings = job.train.model_copy(update={"label_smoothing": 0.0})
    targets, weights = sides[0].targets(), sides[0].weights()
    loss = make_loss(preparation, settings, metric, targets, job.project, weights)
    return Losses(loss, loss)


def _group_losses(job: TrainingJob, preparation: Preparation, metric: str, sides: Sequence[ExampleSet]) -> Losses:
    """Return the losses of a ranking, which take all examples at once; a loss of the user's own is one of rows."""
    if job.train.loss is not None:
        losses = _losses(job, preparation, metric, sides)
        return Losses(losses.train, losses.validation, len(sides[1]))
    train, validation = (listwise_loss(torch.from_numpy(groups_of(side.values()))) for side in sides)
    return Losses(train, validation, len(sides[1]))
