"""The fit of the `linear` net: L-BFGS over all training rows, in one process and one epoch.

The objective is convex, so there are no learning rate, no batches and no checkpoints: a fit that was killed begins
again from zero and ends with the same bits. It holds the training rows in memory.
Source: Nocedal and Wright, Numerical Optimization, algorithm 7.5; the penalty is scikit-learn's, with l2 = 1 / C.
"""

from __future__ import annotations

import time
from typing import Any, cast

import torch

from models.data.preparation import Preparation
from models.errors import TrainingError, UsageError
from models.files import storing
from models.metrics.metrics import metric_of
from models.nets.build import build_net, check_arguments
from models.nets.linear import Linear, build
from models.nets.sizes import Sizes
from models.project_spec.references import call
from models.training.batches.examples import LARGEST_PASS, ExampleSet, open_examples
from models.training.checkpoints.finished import write_result
from models.training.checkpoints.state import Progress
from models.training.checkpoints.weights import save_weights
from models.training.costs.counters import peak_memory_mb, reset_peak
from models.training.costs.summary import of_epochs
from models.training.job import WEIGHTS_FILE, EpochReport, TrainingJob, TrainingResult
from models.training.loop import Report
from models.training.model_choice import ValidationScore, as_array, record, score
from models.training.optimisation.losses import Loss, make_loss, predictions

CPU = torch.device("cpu")
_HISTORY = 10
_TOLERANCE_GRADIENT = 1e-5
_TOLERANCE_CHANGE = 1e-7


def fit_linear(job: TrainingJob, report: Report, restarts: int = 0) -> TrainingResult:
    """Fit the linear model of a table to its minimum. Runs in one process.

    Cost: at most `iterations` times one or two passes over the training rows.

    Raises:
        UsageError: An argument is unknown or out of range, or the data is no table.
        TrainingError: The loss is not finite.
        StoreError: The disk is full or cannot be written.
    """
    reset_peak(CPU)
    start = time.perf_counter()
    preparation = Preparation.load(job.prepared)
    check_arguments("linear", build, job.model.arguments, known=("sizes",))
    l2, iterations = _settings(job.model.arguments)
    train, validation = open_examples(job, preparation)
    metric = metric_of(job, preparation, job.project)
    net = cast("Linear", build_net(job.model, Sizes.of(preparation), job.project))
    settings = job.train.model_copy(update={"label_smoothing": 0.0})
    loss = make_loss(preparation, settings, metric.name, train.targets(), job.project)
    train_loss = _minimise(net, train, loss, l2, iterations)
    output, val_loss = _evaluate(net, validation, loss)
    examples = (validation.values(), predictions(output, preparation), as_array(validation.weights()))
    latest: ValidationScore = call(score, metric.name, metric, preparation.task, *examples)
    losses = {"train_loss": train_loss, "val_loss": val_loss, **latest.values(metric.name)}
    progress = _progress(time.perf_counter() - start, len(train), losses)
    record(progress, latest, job.direction, 1)
    pruned = not report(EpochReport(epoch=1, epochs=1, values=progress.history[0]))
    with storing(job.folder):
        job.folder.mkdir(parents=True, exist_ok=True)
    return write_result(
        job,
        progress,
        weights=WEIGHTS_FILE,
        weights_sha256=save_weights(job.folder / WEIGHTS_FILE, net.state_dict()),
        num_parameters=sum(parameter.numel() for parameter in net.parameters()),
        restarts=restarts,
        pruned=pruned,
        costs=of_epochs(progress.history, "cpu"),
        environment={
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
            "train_examples": len(train),
            "validation_examples": len(validation),
        },
    )


def _progress(seconds: float, num_train: int, losses: dict[str, float]) -> Progress:
    """Return the progress of a finished fit: one epoch."""
    values = {
        **losses,
        "samples_per_s": num_train / max(seconds, 1e-9),
        "device_s": seconds,
        "peak_memory_mb": peak_memory_mb(CPU),
    }
    return Progress(epoch=1, step=1, history=[values], seconds=seconds)


def _settings(arguments: dict[str, Any]) -> tuple[float, int]:
    l2, iterations = arguments.get("l2", 1.0), arguments.get("iterations", 100)
    for name, value, least in (("l2", l2, 0), ("iterations", iterations, 1)):
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value < least:
            raise UsageError(f"model.arguments.{name}: got {value!r}, expected a number of at least {least}")
    return float(l2), int(iterations)


def _minimise(net: Linear, train: ExampleSet, loss: Loss, l2: float, iterations: int) -> float:
    """Fit the weights to the mean loss and `l2 / 2n` times their squares; return the mean loss of the training rows."""
    positions = torch.arange(len(train))
    inputs, target, weight = train.gather(positions), train.gather_target(positions), train.gather_weight(positions)
    optimiser = torch.optim.LBFGS(
        net.parameters(),
        max_iter=iterations,
        history_size=_HISTORY,
        tolerance_grad=_TOLERANCE_GRADIENT,
        tolerance_change=_TOLERANCE_CHANGE,
        line_search_fn="strong_wolfe",
    )

    def objective() -> torch.Tensor:
        optimiser.zero_grad()
        total = (loss(net(**inputs), target, weight) + l2 / 2 * net.penalty()) / len(train)
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimiser.step(objective)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        mean = float(loss(net(**inputs), target)) / len(train)
    if not torch.tensor(mean).isfinite():
        raise TrainingError(f"train_loss is not finite after the fit: got {mean}: look at the data, or raise model.l2")
    return mean


@torch.no_grad()
def _evaluate(net: Linear, examples: ExampleSet, loss: Loss) -> tuple[torch.Tensor, float]:
    """Return the outputs (examples, num_outputs) and the mean loss."""
    outputs, total = [], 0.0
    for positions in torch.split(torch.arange(len(examples)), LARGEST_PASS):
        outputs.append(net(**examples.gather(positions)))
        total += float(loss(outputs[-1], examples.gather_target(positions)))
    return torch.cat(outputs), total / len(examples)
