"""The reference forecast of a window: what a net for series starts from and corrects.

A net that must produce the level of a series by itself fails where the level moves: it extrapolates badly. So it adds
to a forecast from the window itself. Three forecasts are compared on the newest fifth of the training examples, which
their fits do not see: the last value, the value of a season ago, and a linear map of the window to what is added to its
last value. The best one is fitted on all training examples.

The map reads how the other columns moved, never their levels, and only if it is clearly better with them: a level that
grows leaves the range of the training rows. Source: docs/decisions/0100-series-with-other-columns.md.

Source: Zeng et al. (2023), "Are Transformers Effective for Time Series Forecasting?", NLinear: subtract the last value,
apply a linear layer, add it again. Kim et al. (2022), RevIN: scale each window. Lai et al. (2018), LSTNet: a linear
part beside the net.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.data.preparation import Preparation, WindowReference
from models.metrics.metrics import quantiles_of
from models.metrics.regression import sample_quantiles
from models.project_spec.frequency import Frequency
from models.project_spec.window import Window

MOST_EXAMPLES = 20_000
"""Most training examples, the newest, that a reference is fitted on."""
LEAST_EXAMPLES = 20
MOVES = 2
"""Inputs of a linear map that another column makes."""
HELD_OUT = 0.2
_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Ridge penalties that are tried, in units of the mean variance of the inputs."""
_FLOOR = 0.05
"""Least scale of a window, as a share of the training windows' usual one: a constant window must not divide by 0."""
_MOST_LEVERAGE = 0.99
"""Most leverage that counts: an example that alone decides a weight has no error to learn from."""
_YEAR = 31_557_600_000_000
_PERIODS = {
    "microsecond": (86_400_000_000, 7 * 86_400_000_000, _YEAR),
    "weekday": (5, 261),
    "month": (12,),
}
_LEAST_PERIODS = 2


class SeriesValues(NamedTuple):
    """All steps of series and the training examples in them.

    Attributes:
        values: Inputs in their own units, float64 (step, feature), NaN for missing.
        target: The target (step,), NaN for missing.
        steps: How many steps of the same series lie directly before each, without a gap (step,).
        rows: The step that each training example predicts, of several horizons the farthest, in the order of time
            (example,).
        times: The time of each step, int64 (step,).
    """

    values: np.ndarray
    target: np.ndarray
    steps: np.ndarray
    rows: np.ndarray
    times: np.ndarray


def season_of(series: SeriesValues, frequency: Frequency, window: Window) -> int | None:
    """Return the number of steps in the season that forecasts the training targets best; None without a season.

    Candidates are `window.season`, or `seasons_of` the frequency.
    """
    if window.season is not None:
        return window.season
    errors = {}
    for length in seasons_of(frequency):
        lag = seasonal_lag(length, window.last_horizon)
        rows = series.rows[series.steps[series.rows] >= max(lag, _LEAST_PERIODS * length)]
        apart = np.abs(series.target[rows] - series.target[rows - lag])
        if np.isfinite(apart).any():
            errors[length] = float(np.nanmean(apart))
    return min(errors, key=lambda length: errors[length]) if errors else None


def seasons_of(frequency: Frequency) -> list[int]:
    """Return the steps in a day, a week and a year, ascending, where they are two or more."""
    periods = _PERIODS.get(frequency.unit, ())
    whole = [period for period in periods if period == _YEAR or not period % frequency.num_units]
    return sorted({length for period in whole if (length := round(period / frequency.num_units)) > 1})


def seasonal_lag(season: int, horizon: int) -> int:
    """Return how many steps before its target the value of a season ago lies that is known `horizon` steps ahead."""
    return season * -(-horizon // season)


def seasonal_places(season: int | None, window: Window) -> list[int]:
    """Return how many steps before its end a window holds the seasonal value of each horizon; empty if it lacks one."""
    back = [seasonal_lag(season, ahead) - ahead for ahead in window.horizons] if season else []
    return back if max(back, default=0) < window.length else []


def fit_reference(
    series: SeriesValues, preparation: Preparation, season: int | None, metric: str = ""
) -> WindowReference | None:
    """Return the best reference for the training examples; None if the target is no input.

    Of quantiles, and with a metric of one quantile, it has the quantiles of its errors.

    Cost: a linear fit takes O(examples x width^2), the width being the steps of the window plus the other columns.
    """
    window = preparation.window
    names = [part.name for part in preparation.numeric]
    if window is None or window.reference == "none" or preparation.target.name not in names:
        return None
    column = names.index(preparation.target.name)
    windows, target = _examples(series, preparation)
    data = WindowExamples.of(windows, target, column)
    levels = quantiles_of(preparation.outputs, metric)
    back = seasonal_places(season, window)
    if window.reference == "last" or (window.reference == "auto" and len(target) < LEAST_EXAMPLES):
        best = WindowReference(kind="last", column=column, floor=data.floor)
    elif window.reference == "seasonal" and back:
        best = WindowReference(kind="seasonal", column=column, back=back, floor=data.floor)
    else:
        best = _best(data, column, back, window.reference, held_out(series, window), levels)
    if not levels:
        return best
    return best.model_copy(update={"quantiles": sample_quantiles(data.left_out_errors(best), levels).tolist()})


class HeldOut(NamedTuple):
    """The examples that fits are made of, and later ones that choose between them: bool (example,) each."""

    early: np.ndarray
    late: np.ndarray


def held_out(series: SeriesValues, window: Window) -> HeldOut:
    """Return the division of the newest training examples: the late ones are the newest fifth, of all series alike.

    The targets of the early ones are of times before the first window of the late ones ends.
    """
    rows = series.rows[-MOST_EXAMPLES:]
    last = series.times[rows]
    late = last >= last[min(len(rows) - 1, round(len(rows) * (1 - HELD_OUT)))]
    early = last < series.times[rows[late] - window.last_horizon].min()
    early[0] |= not early.any()
    return HeldOut(early, late)


def _best(
    data: WindowExamples, column: int, back: list[int], reference: str, parts: HeldOut, levels: Sequence[float]
) -> WindowReference:
    early, late = (data.only(part) for part in parts)

    def losses(candidate: WindowReference) -> np.ndarray:
        return _losses(early, late, candidate, levels)

    def loss(candidate: WindowReference) -> float:
        return float(losses(candidate).mean())

    best, *with_companions = (
        min((early.linear(column, *form) for form in itertools.product((False, True), _PENALTIES, [reads])), key=loss)
        for reads in data.forms
    )
    best = next((fit for fit in with_companions if is_clearly_less(losses(fit), losses(best))), best)
    candidates = [best]
    if reference == "auto":
        common = {"column": column, "floor": data.floor, "is_scaled": best.is_scaled}
        candidates.append(WindowReference(kind="last", **common))
        if back:
            candidates.append(WindowReference(kind="seasonal", back=back, **common))
    best = min(candidates, key=loss)
    return data.linear(column, best.is_scaled, best.penalty, best.has_companions) if best.kind == "linear" else best


def is_clearly_less(losses: np.ndarray, others: np.ndarray) -> bool:
    """Return whether the mean of losses (example,) is below that of others by over a standard error of the difference.

    So what is simpler is kept where the examples do not tell the two apart.
    Source: the one-standard-error rule, Breiman et al., Classification and Regression Trees (1984), section 3.4.3.
    """
    lead = others - losses
    return bool(lead.mean() > lead.std(ddof=min(1, len(lead) - 1)) / np.sqrt(len(lead)))


def _losses(
    early: WindowExamples, late: WindowExamples, reference: WindowReference, levels: Sequence[float]
) -> np.ndarray:
    """Return the absolute errors of the late examples, or the pinball losses of quantiles with the early errors.

    They are means over the horizons (example,).
    """
    errors, scale = late.errors(reference), late.scale(reference.is_scaled)
    if not levels:
        return np.asarray(np.abs(errors * scale).mean(axis=1))
    quantiles = sample_quantiles(early.left_out_errors(reference), levels)
    apart = np.repeat(errors, len(levels), axis=1) - quantiles
    shares = np.resize(levels, apart.shape[1])
    return np.asarray((np.maximum(shares * apart, (shares - 1) * apart) * scale).mean(axis=1))


class WindowExamples(NamedTuple):
    """Examples in the standardised units of the net's input.

    `own`: the target's window (example, step); `moves`: the last step of each other column, then how far the last value
    of each is from the mean of its window (example, 2 x column); `target`: (example, horizon); `floor`: the least scale
    of a window.
    """

    own: np.ndarray
    moves: np.ndarray
    target: np.ndarray
    floor: float

    @classmethod
    def of(cls, windows: np.ndarray, target: np.ndarray, column: int, floor: float | None = None) -> WindowExamples:
        """Return the examples of windows (example, step, feature); the default floor is measured in them."""
        own_window = windows[:, :, column]
        others = np.delete(windows, column, axis=2)
        last = others[:, -1]
        mean = others.mean(axis=1) * (others.shape[1] > 1)  # a window of a step has nothing else to compare with
        moves = np.hstack([last - others[:, -min(2, others.shape[1])], last - mean])
        if floor is not None:
            return cls(own_window, moves, target, floor)
        spread = np.sqrt(((own_window - own_window[:, -1:]) ** 2).mean(axis=1))
        usual = float(np.median(spread)) or float(spread.mean()) or 1.0
        return cls(own_window, moves, target, _FLOOR * usual)

    @property
    def forms(self) -> list[bool]:
        """Whether a linear map reads the other columns, the simpler form first."""
        return [False, True] if self.moves.shape[1] else [False]

    @property
    def last(self) -> np.ndarray:
        """The last value of each window (example, 1)."""
        return self.own[:, -1:]

    def scale(self, is_scaled: bool) -> np.ndarray:
        """Return what windows and changes are divided by (example, 1): 1, or the spread around the last value."""
        if not is_scaled:
            return np.ones((len(self.own), 1))
        return np.asarray(np.sqrt(((self.own - self.last) ** 2).mean(axis=1, keepdims=True) + self.floor**2))

    def inputs(self, is_scaled: bool) -> np.ndarray:
        """Return the inputs of the linear map: the window relative to its last value, `moves`, and 1."""
        relative = np.hstack([self.own - self.last, self.moves]) / self.scale(is_scaled)
        return np.hstack([relative, np.ones((len(self.own), 1))])

    def read_inputs(self, has_companions: bool) -> np.ndarray:
        """Return the places of the inputs that a linear map reads, with the other columns or without (input,)."""
        places = np.arange(self.own.shape[1] + self.moves.shape[1] + 1)
        return places if has_companions else np.delete(places, slice(self.own.shape[1], -1))

    def change(self, is_scaled: bool) -> np.ndarray:
        """Return what the linear map learns: the change from the last value (example, horizon)."""
        return np.asarray((self.target - self.last) / self.scale(is_scaled))

    def only(self, examples: np.ndarray) -> WindowExamples:
        """Return some of the examples, bool (example,)."""
        return WindowExamples(self.own[examples], self.moves[examples], self.target[examples], self.floor)

    def linear(self, column: int, is_scaled: bool, penalty: float, has_companions: bool) -> WindowReference:
        """Return the ridge regression of the change from the last value, as a reference."""
        inputs = self.inputs(is_scaled)
        places = self.read_inputs(has_companions)
        weights = ridge(inputs.T @ inputs, inputs.T @ self.change(is_scaled), penalty, places)
        return WindowReference(
            kind="linear",
            column=column,
            weights=weights.ravel().tolist(),
            penalty=penalty,
            is_scaled=is_scaled,
            has_companions=has_companions,
            floor=self.floor,
        )

    def errors(self, reference: WindowReference) -> np.ndarray:
        """Return the errors of a reference (example, horizon), in the scale of the windows."""
        change = self.change(reference.is_scaled)
        if reference.kind == "last":
            return change
        if reference.kind == "seasonal":
            seasonal = self.own[:, [-1 - steps for steps in reference.back]]
            return np.asarray(change - (seasonal - self.last) / self.scale(reference.is_scaled))
        weights = np.reshape(reference.weights, (change.shape[1], -1))
        return np.asarray(change - self.inputs(reference.is_scaled) @ weights.T)

    def left_out_errors(self, reference: WindowReference, gram: np.ndarray | None = None) -> np.ndarray:
        """Return the errors of a reference on its training examples (example, horizon), in the scale of the windows.

        Those of a linear one are those of the fits without each example, which the whole fit has come too near.
        Source: Golub, Heath and Wahba (1979), Technometrics 21(2).

        Args:
            reference: Fitted on these examples.
            gram: Of more examples than these, on which it was fitted: the products of their inputs (input, input).
        """
        errors = self.errors(reference)
        if reference.kind != "linear":
            return errors
        inputs = self.inputs(reference.is_scaled)
        gram = inputs.T @ inputs if gram is None else gram
        places = self.read_inputs(reference.has_companions)
        inputs, gram = inputs[:, places], gram[np.ix_(places, places)]
        solved = np.linalg.lstsq(_penalised(gram, reference.penalty), inputs.T, rcond=None)[0]
        leverage = np.clip(np.einsum("ei,ie->e", inputs, solved), 0.0, _MOST_LEVERAGE)
        return np.asarray(errors / (1 - leverage)[:, None])


def ridge(gram: np.ndarray, moment: np.ndarray, penalty: float, places: np.ndarray) -> np.ndarray:
    """Return the weights (output, input) of a ridge regression; the last input is the constant and has no penalty.

    Args:
        gram: The inputs' products, summed over examples (input, input).
        moment: The products of inputs and outputs (input, output).
        penalty: In units of the mean variance of the inputs, times the number of examples.
        places: The inputs that it reads, the constant among them; the weights of the others are 0.
    """
    weights = np.zeros(moment.T.shape)
    read = _penalised(gram[np.ix_(places, places)], penalty)
    weights[:, places] = np.linalg.lstsq(read, moment[places], rcond=None)[0].T
    return weights


def _penalised(gram: np.ndarray, penalty: float) -> np.ndarray:
    gram = gram.copy()
    usual = float(np.trace(gram[:-1, :-1])) / max(1, len(gram) - 1) or 1.0
    gram[np.diag_indices(len(gram) - 1)] += penalty * usual
    gram[-1, -1] += 1e-9
    return gram


def _examples(series: SeriesValues, preparation: Preparation) -> tuple[np.ndarray, np.ndarray]:
    """Return windows (example, step, feature) and targets (example, horizon), in the inputs' standardised units."""
    window = preparation.window
    assert window is not None
    rows = series.rows[-MOST_EXAMPLES:]
    steps = np.arange(1 - window.length, 1)
    windows = series.values[(rows - window.last_horizon)[:, None] + steps]
    places = np.where(np.isnan(windows), -1, np.arange(window.length)[None, :, None])
    last_known = np.maximum.accumulate(places, axis=1)
    windows = np.take_along_axis(windows, np.maximum(last_known, 0), axis=1)
    target = series.target[(rows - window.last_horizon)[:, None] + window.horizons]
    for index, part in enumerate(preparation.numeric):
        filled = np.where(np.isnan(windows[:, :, index]), part.fill, windows[:, :, index])
        windows[:, :, index] = (filled - part.shift) / part.scale
        if part.name == preparation.target.name:
            target = (target - part.shift) / part.scale
    return windows, target
