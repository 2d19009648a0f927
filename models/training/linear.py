"""The fit of the `linear` net in one process and one epoch: L-BFGS over all training rows; of series, ridge regression.

A quantile of series is the forecast of the ridge regression plus that quantile of the errors that it makes without the
example (`models/data/window_reference.py`).

The objective is convex (`models/training/convex/fit.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from models.data.feeds import spread_positions
from models.data.preparation import Preparation
from models.data.window_reference import MOST_EXAMPLES, WindowExamples, ridge, seasonal_places
from models.inputs.numeric.record import NumericInput
from models.kinds.data_kind import PerDataKind
from models.metrics.metrics import quantiles_of
from models.metrics.regression import sample_quantiles
from models.nets.build import build_net, check_arguments
from models.nets.linear import Linear, LinearWindow, build, build_naive
from models.nets.sizes import Sizes
from models.training.batches.example_set import ExampleSet
from models.training.batches.examples import LARGEST_PASS
from models.training.convex.fit import ConvexFit, evaluate, minimise, settings_of
from models.training.convex.smoothing import smoothing_maps
from models.training.job import COMPANIONS, RefitSettings, TrainingJob, TrainingResult
from models.training.loop import Report
from models.training.model_choice import is_better
from models.training.search_course import jackknife_error

_PENALTY = 1.0
_PENALTIES: PerDataKind[Sequence[float]] = {
    "table": (_PENALTY,),
    "image": (_PENALTY,),
    "series": (1e-2, 1e-1, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0),
    "text": (_PENALTY,),
}
"""Values of `l2` that are tried if the spec has none; of series in units of the mean variance of the inputs."""
MOST_SMOOTHED = 2_000
"""Training examples, evenly spread, that choose the rates of exponential smoothing."""


def fit_naive(job: TrainingJob, report: Report, restarts: int = 0) -> TrainingResult:
    """Take the last value of a series or that of a season ago, whichever is better on validation.

    Raises:
        UsageError: There are arguments, or no reference forecast.
        StoreError: The disk is full or cannot be written.
    """
    return _fit(job, report, restarts, _Family(build_naive, _naive_fits))


def fit_smoothing(job: TrainingJob, report: Report, restarts: int = 0) -> TrainingResult:
    """Take exponential smoothing with the rates that are best on training, or a naive forecast if it is no worse.

    Raises:
        UsageError: There are arguments, or no reference forecast.
        StoreError: The disk is full or cannot be written.
    """
    return _fit(job, report, restarts, _Family(build_naive, _smoothed_fits))


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
    fit = ConvexFit.open(job)
    check_arguments(job.model.net, family.build, job.model.arguments, reserved=("sizes",))
    l2, iterations = settings_of(job.model.arguments, _PENALTIES[fit.preparation.kind])
    net = build_net(job.model, Sizes.of(fit.preparation, job.model.net), job.project)
    chosen: dict[str, Any] = {}
    if isinstance(net, LinearWindow):
        tried = _Tried.of(fit.preparation, fit.metric.name, l2)
        fits = family.fits(net, fit.train, tried, job.refit)
        chosen = _fit_windows(net, fits, job.direction, lambda: fit.scored(net)[0].goal, lambda: fit.goals(net))
        if COMPANIONS in chosen:
            needed = {fit.preparation.target.name, *fit.preparation.required_window.known_future}
            columns = [part.column for part in tried.inputs if part.column not in needed]
            chosen[COMPANIONS]["columns"] = columns
        train_loss = evaluate(net, fit.train, fit.losses.train)[1]
    else:
        train_loss = minimise(cast("Linear", net), fit.train, fit.losses.train, l2[0], iterations)
    return fit.finish(net, fit.scored(net), train_loss, chosen, report, restarts)


def _fit_windows(
    net: LinearWindow,
    fits: Iterator[_WindowFit],
    direction: str,
    goal: Callable[[], float],
    goals: Callable[[], list[float]],
) -> dict[str, Any]:
    """Give the net the weights of the best fit by the goal, and return the settings of that fit.

    With them stands, as `COMPANIONS`, what the best fits with the other columns and without them reached, if both were
    tried. A fit that reads the other columns is taken if it is better than without them by over a standard error, of
    which `goals`, the values without each block of examples, tell.
    """
    bests: dict[bool, tuple[_WindowFit, float]] = {}
    for fit in fits:
        net.load_state_dict(fit.state)
        reached = goal()
        if fit.has_companions not in bests or is_better(reached, bests[fit.has_companions][1], direction):
            bests[fit.has_companions] = fit, reached
    best, *alternatives = (bests[form][0] for form in sorted(bests))
    for alternative in alternatives:
        without = {}
        for fit in (best, alternative):
            net.load_state_dict(fit.state)
            without[fit.has_companions] = np.array(goals())
        lead = (1 if direction == "maximize" else -1) * (bests[True][1] - bests[False][1])
        if lead > jackknife_error(without[True] - without[False]):
            best = alternative
    net.load_state_dict(best.state)
    settings = {"l2": best.l2, "is_scaled": best.is_scaled, "has_companions": best.has_companions}
    if not alternatives:
        return settings
    return {**settings, COMPANIONS: {"with": bests[True][1], "without": bests[False][1]}}


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
    season: int | None
    horizons: list[int]

    @classmethod
    def of(cls, preparation: Preparation, metric: str, l2: list[float]) -> _Tried:
        """Return what is tried for the goal's metric."""
        season, window = preparation.season, preparation.required_window
        back, levels = seasonal_places(season, window), quantiles_of(preparation.outputs, metric)
        return cls(l2, levels, preparation.numeric, back, season, window.horizons)


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
    nothing = np.zeros((len(tried.horizons), net.length))
    yield _fit_of_map(net, train, tried, nothing)
    if tried.back:
        yield _fit_of_map(net, train, tried, np.eye(net.length)[net.length - 1 - np.array(tried.back)])


def _smoothed_fits(
    net: LinearWindow, train: ExampleSet, tried: _Tried, refit: RefitSettings | None
) -> Iterator[_WindowFit]:
    """Yield the naive forecasts, and the smoothing that is best on the training examples."""
    yield from _naive_fits(net, train, tried, refit)
    some = _examples_of(net, train, tried)(torch.from_numpy(spread_positions(len(train), MOST_SMOOTHED)))
    relative, change = some.own - some.last, some.change(is_scaled=False)
    maps = smoothing_maps(net.length, tried.season, tried.horizons)
    errors = [np.abs(change - relative @ weights.T).mean() for weights in maps]
    yield _fit_of_map(net, train, tried, maps[int(np.argmin(errors))])


def _fit_of_map(net: LinearWindow, train: ExampleSet, tried: _Tried, steps: NDArray[np.float64]) -> _WindowFit:
    """Return a map of the target's window alone (horizon, step); its quantiles are those of its errors."""
    weights = np.zeros((len(steps), net.weight.shape[1]))
    weights[:, : net.length] = steps
    if tried.levels:
        some = _examples_of(net, train, tried)(torch.from_numpy(spread_positions(len(train), MOST_EXAMPLES)))
        update = {"kind": "linear", "weights": weights.ravel(), "is_scaled": False}
        errors = some.errors(net.reference.forecast.model_copy(update=update))
        weights = np.repeat(weights, len(tried.levels), axis=0)
        weights[:, -1] += sample_quantiles(errors, tried.levels)
    return _WindowFit(torch.from_numpy(weights).float(), 0.0, is_scaled=False, has_companions=False)


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
