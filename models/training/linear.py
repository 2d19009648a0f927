"""The fit of the `linear` net in one process and one epoch: L-BFGS over all training rows; of series, ridge regression.

A quantile of series is the forecast of the ridge regression plus that quantile of the errors that it makes without the
example (`models/data/window_reference.py`).

The objective is convex, so there are no learning rate, no batches and no checkpoints: a fit that was killed begins
again from zero and ends with the same bits. It holds the training rows in memory.
Source: Nocedal and Wright, Numerical Optimization, algorithm 7.5; the penalty is scikit-learn's, with l2 = 1 / C.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from models.data.feeds import spread_positions
from models.data.preparation import Preparation
from models.data.window_reference import MOST_EXAMPLES, WindowExamples, ridge, seasonal_places
from models.errors import TrainingError, UsageError
from models.files import storing
from models.inputs.numeric.record import NumericInput
from models.kinds.data_kind import Kind, PerDataKind
from models.kinds.task import TASKS
from models.metrics.metrics import metric_of, quantiles_of
from models.metrics.ranking import groups_of
from models.metrics.regression import sample_quantiles
from models.nets.build import build_net, check_arguments
from models.nets.catalogue import row_of
from models.nets.linear import Linear, LinearWindow, build, build_naive
from models.nets.sizes import Sizes
from models.project_spec.references import call
from models.training.batches.example_set import ExampleSet
from models.training.batches.examples import LARGEST_PASS, open_examples
from models.training.checkpoints.finished import write_result
from models.training.checkpoints.state import Progress
from models.training.checkpoints.weights import save_weights
from models.training.choices import cpu_despite_gpu
from models.training.costs.counters import peak_memory_mb, reset_peak
from models.training.costs.summary import of_epochs
from models.training.job import WEIGHTS_FILE, EpochReport, RefitSettings, TrainingJob, TrainingResult
from models.training.loop import Report
from models.training.model_choice import ValidationScore, as_array, is_better, record, score
from models.training.optimisation.listwise import listwise_loss
from models.training.optimisation.losses import Loss, make_loss, predictions
from models.training.search_course import jackknife_error, without_blocks

CPU = torch.device("cpu")
_PENALTY = 1.0
_PENALTIES: PerDataKind[Sequence[float]] = {
    "table": (_PENALTY,),
    "image": (_PENALTY,),
    "series": (1e-2, 1e-1, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0),
    "text": (_PENALTY,),
}
"""Values of `l2` that are tried if the spec has none; of series in units of the mean variance of the inputs."""
_HISTORY = 10
_TOLERANCE_GRADIENT = 1e-5
_TOLERANCE_CHANGE = 1e-7


def fit_naive(job: TrainingJob, report: Report, restarts: int = 0) -> TrainingResult:
    """Take the last value of a series or that of a season ago, whichever is better on validation.

    Raises:
        UsageError: There are arguments, or no reference forecast.
        StoreError: The disk is full or cannot be written.
    """
    return _fit(job, report, restarts, _Family(build_naive, _naive_fits))


def fit_linear(job: TrainingJob, report: Report, restarts: int = 0) -> TrainingResult:
    """Fit the linear model of a table or of series to its minimum. Runs in one process.

    Cost: at most `iterations` times one or two passes over the training rows; of series two passes, and O(examples x
    width^2), the width being the steps of the window plus the other columns.

    Raises:
        UsageError: An argument is unknown or out of range, or the data is neither.
        TrainingError: The loss is not finite.
        StoreError: The disk is full or cannot be written.
    """
    return _fit(job, report, restarts, _Family(build, _window_fits))


class _Family(NamedTuple):
    """The factory of a family's net, which declares its arguments, and the fits that are tried for series."""

    build: Callable[..., nn.Module]
    fits: Callable[[LinearWindow, ExampleSet, _Tried, RefitSettings | None], Iterator[_WindowFit]]


def _fit(job: TrainingJob, report: Report, restarts: int, family: _Family) -> TrainingResult:
    reset_peak(CPU)
    start = time.perf_counter()
    preparation = Preparation.load(job.prepared)
    check_arguments(job.model.net, family.build, job.model.arguments, reserved=("sizes",))
    l2, iterations = _settings(job.model.arguments, preparation.kind)
    train, validation = open_examples(job, preparation)
    metric = metric_of(job, preparation, job.project)
    net = build_net(job.model, Sizes.of(preparation, job.model.net), job.project)
    chosen: dict[str, Any] = {}
    losses_of = _group_losses if TASKS[preparation.task].is_grouped else _losses
    losses = losses_of(job, preparation, metric.name, (train, validation))

    def scored() -> tuple[ValidationScore, float]:
        output, val_loss = _evaluate(net, validation, losses.validation, losses.largest_pass)
        examples = (validation.values(), predictions(output, preparation), as_array(validation.weights()))
        return call(score, metric.name, metric, preparation.task, *examples), val_loss

    def goals() -> list[float]:
        output, _ = _evaluate(net, validation, losses.validation, losses.largest_pass)
        weights = as_array(validation.weights())
        evaluate = metric.weighted(validation.values(), predictions(output, preparation), weights)
        return [call(evaluate, metric.name, drawn) for drawn in without_blocks(len(validation))]

    if isinstance(net, LinearWindow):
        fits = family.fits(net, train, _Tried.of(preparation, metric.name, l2), job.refit)
        chosen = _fit_windows(net, fits, job.direction, lambda: scored()[0].goal, goals)
        train_loss = _evaluate(net, train, losses.train)[1]
    else:
        train_loss = _minimise(cast("Linear", net), train, losses.train, l2[0], iterations)
    latest, val_loss = scored()
    values = {"train_loss": train_loss, "val_loss": val_loss, **latest.values(metric.name)}
    progress = _progress(time.perf_counter() - start, len(train), values)
    record(progress, latest, job.direction, 1)
    pruned = not report(EpochReport(epoch=1, epochs=1, values=progress.history[0]))
    return write_result(
        job,
        progress,
        weights=WEIGHTS_FILE,
        weights_sha256=_save(net, job.folder),
        num_parameters=sum(parameter.numel() for parameter in net.parameters()),
        restarts=restarts,
        pruned=pruned,
        costs=of_epochs(progress.history, "cpu"),
        environment={**_environment(len(train), len(validation)), **chosen},
    )


def _save(net: nn.Module, folder: Path) -> str:
    """Write the net's weights into a job's folder; return their hash."""
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return save_weights(folder / WEIGHTS_FILE, net.state_dict())


def _environment(num_train: int, num_validation: int) -> dict[str, Any]:
    return {
        "torch": str(torch.__version__),
        "chosen": cpu_despite_gpu(row_of("linear").no_gpu),
        "threads": torch.get_num_threads(),
        "train_examples": num_train,
        "validation_examples": num_validation,
    }


def _progress(seconds: float, num_train: int, losses: dict[str, float]) -> Progress:
    """Return the progress of a finished fit: one epoch."""
    values = {
        **losses,
        "samples_per_s": num_train / max(seconds, 1e-9),
        "device_s": seconds,
        "peak_memory_mb": peak_memory_mb(CPU),
    }
    return Progress(epoch=1, step=1, history=[values], seconds=seconds)


def _settings(arguments: dict[str, Any], kind: Kind) -> tuple[list[float], int]:
    """Return the penalties that are tried, and the iterations."""
    l2, iterations = arguments.get("l2", _PENALTY), arguments.get("iterations", 100)
    for name, value, lowest in (("l2", l2, 0), ("iterations", iterations, 1)):
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value < lowest:
            raise UsageError(f"model.arguments.{name}: got {value!r}, expected a number of at least {lowest}")
    return [float(l2)] if "l2" in arguments else list(_PENALTIES[kind]), int(iterations)


def _minimise(net: Linear, train: ExampleSet, loss: Loss, l2: float, iterations: int) -> float:
    """Fit the weights to the mean loss and `l2 / 2n` times their squares; return the mean loss of the training rows."""
    positions = torch.arange(len(train))
    inputs, target, weight = train.inputs(), train.gather_target(positions), train.gather_weight(positions)
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
        mean = float(loss(net(**inputs), target, weight)) / train.total_weight
    if not torch.tensor(mean).isfinite():
        raise TrainingError(f"train_loss is not finite after the fit: got {mean}: look at the data, or raise model.l2")
    return mean


def _fit_windows(
    net: LinearWindow,
    fits: Iterator[_WindowFit],
    direction: str,
    goal: Callable[[], float],
    goals: Callable[[], list[float]],
) -> dict[str, Any]:
    """Give the net the weights of the best fit by the goal, and return the settings of that fit.

    A fit that reads the other columns is taken if it is better than without them by over a standard error, of which
    `goals`, the values without each block of examples, tell.
    """
    bests: dict[bool, tuple[_WindowFit, float]] = {}
    for fit in fits:
        net.load_state_dict(fit.state)
        reached = goal()
        if fit.has_companions not in bests or is_better(reached, bests[fit.has_companions][1], direction):
            bests[fit.has_companions] = fit, reached
    best, *others = (bests[form][0] for form in sorted(bests))
    for other in others:
        without = {}
        for fit in (best, other):
            net.load_state_dict(fit.state)
            without[fit.has_companions] = np.array(goals())
        lead = (1 if direction == "maximize" else -1) * (bests[True][1] - bests[False][1])
        if lead > jackknife_error(without[True] - without[False]):
            best = other
    net.load_state_dict(best.state)
    return {"l2": best.l2, "is_scaled": best.is_scaled, "has_companions": best.has_companions}


class _WindowFit(NamedTuple):
    """The weights of a linear model of series, with the penalty and the form of the windows that they belong to."""

    weight: torch.Tensor
    l2: float
    is_scaled: bool
    has_companions: bool

    @property
    def state(self) -> dict[str, torch.Tensor]:
        return {"weight": self.weight, "is_scaled": torch.tensor(self.is_scaled)}


class _Tried(NamedTuple):
    """What is tried: penalties, quantiles (none: the mean), the inputs, and how far back the seasonal values lie."""

    l2: list[float]
    levels: list[float]
    inputs: list[NumericInput]
    back: list[int]

    @classmethod
    def of(cls, preparation: Preparation, metric: str, l2: list[float]) -> _Tried:
        """Return what is tried for the goal's metric."""
        season = preparation.series.season if preparation.series else None
        back = seasonal_places(season, preparation.required_window)
        return cls(l2, quantiles_of(preparation.outputs, metric), preparation.numeric, back)


def _window_fits(
    net: LinearWindow, train: ExampleSet, tried: _Tried, refit: RefitSettings | None
) -> Iterator[_WindowFit]:
    """Yield the fit with each penalty, to windows as they are and divided by their spread; of a refit only the one.

    Where there are other columns, each is fitted without them too.
    """
    forecast, levels = net.reference.forecast, tried.levels
    windows = _examples_of(net, train, tried)
    forms = (False, True) if refit is None else (bool(refit.is_scaled),)
    for is_scaled in forms:
        gram: NDArray[np.float64] = np.zeros((net.weight.shape[1], net.weight.shape[1]))
        moment: NDArray[np.float64] = np.zeros((net.weight.shape[1], net.weight.shape[0] // max(1, len(levels))))
        for positions in torch.split(torch.arange(len(train)), LARGEST_PASS):
            some = windows(positions)
            inputs = some.inputs(is_scaled)
            gram += inputs.T @ inputs
            moment += inputs.T @ some.change(is_scaled)
        reads = some.forms if refit is None else [bool(refit.has_companions)]
        for penalty, has_companions in itertools.product(tried.l2, reads):
            weights = ridge(gram, moment, penalty / len(train), some.read_inputs(has_companions))
            if levels:
                some = windows(torch.from_numpy(spread_positions(len(train), MOST_EXAMPLES)))
                update: dict[str, Any] = {"kind": "linear", "weights": weights.ravel(), "penalty": penalty / len(train)}
                update |= {"is_scaled": is_scaled, "has_companions": has_companions}
                fitted = forecast.model_copy(update=update)
                errors = some.left_out_errors(fitted, gram)
                weights = np.repeat(weights, len(levels), axis=0)
                weights[:, -1] += sample_quantiles(errors, levels)
            yield _WindowFit(torch.from_numpy(weights).float(), penalty, is_scaled, has_companions)


def _naive_fits(
    net: LinearWindow, train: ExampleSet, tried: _Tried, refit: RefitSettings | None
) -> Iterator[_WindowFit]:
    """Yield the last value, and where windows hold it the seasonal value, as maps with the weight 1 at that step."""
    del refit
    num_levels = max(1, len(tried.levels))
    length, horizons = net.length, np.arange(net.weight.shape[0] // num_levels)
    for back in [[], tried.back] if tried.back else [[]]:
        weights = np.zeros((len(horizons), net.weight.shape[1]))
        if back:
            weights[horizons, length - 1 - np.array(back)] = 1.0
        if tried.levels:
            some = _examples_of(net, train, tried)(torch.from_numpy(spread_positions(len(train), MOST_EXAMPLES)))
            update = {"kind": "linear", "weights": weights.ravel(), "is_scaled": False}
            errors = some.errors(net.reference.forecast.model_copy(update=update))
            weights = np.repeat(weights, num_levels, axis=0)
            weights[:, -1] += sample_quantiles(errors, tried.levels)
        yield _WindowFit(torch.from_numpy(weights).float(), 0.0, is_scaled=False, has_companions=False)


def _examples_of(net: LinearWindow, train: ExampleSet, tried: _Tried) -> Callable[[torch.Tensor], WindowExamples]:
    """Return what gives the examples at some positions."""
    forecast = net.reference.forecast
    part = tried.inputs[forecast.column]
    values = train.values().reshape(len(train), -1)[:, :: max(1, len(tried.levels))]
    target = (values - part.shift) / part.scale

    def windows(positions: torch.Tensor) -> WindowExamples:
        inputs = train.gather(positions)["series"].double().numpy()
        return WindowExamples.of(inputs, target[positions.numpy()], forecast.column, forecast.floor)

    return windows


class _Losses(NamedTuple):
    """The loss of the training and of the validation examples, and the most examples of a pass."""

    train: Loss
    validation: Loss
    largest_pass: int = LARGEST_PASS


def _losses(job: TrainingJob, preparation: Preparation, metric: str, sides: Sequence[ExampleSet]) -> _Losses:
    settings = job.train.model_copy(update={"label_smoothing": 0.0})
    targets, weights = sides[0].targets(), sides[0].weights()
    loss = make_loss(preparation, settings, metric, targets, job.project, weights)
    return _Losses(loss, loss)


def _group_losses(job: TrainingJob, preparation: Preparation, metric: str, sides: Sequence[ExampleSet]) -> _Losses:
    """Return the losses of a ranking, which take all examples at once; a loss of the user's own is one of rows."""
    if job.train.loss is not None:
        own = _losses(job, preparation, metric, sides)
        return _Losses(own.train, own.validation, len(sides[1]))
    train, validation = (listwise_loss(torch.from_numpy(groups_of(side.values()))) for side in sides)
    return _Losses(train, validation, len(sides[1]))


@torch.no_grad()
def _evaluate(net: nn.Module, examples: ExampleSet, loss: Loss, size: int = LARGEST_PASS) -> tuple[torch.Tensor, float]:
    """Return the outputs (examples, num_outputs) and the mean loss, from passes of `size` examples."""
    outputs, total = [], 0.0
    for positions in torch.split(torch.arange(len(examples)), size):
        outputs.append(net(**examples.gather(positions)))
        total += float(loss(outputs[-1], examples.gather_target(positions), examples.gather_weight(positions)))
    return torch.cat(outputs), total / examples.total_weight
