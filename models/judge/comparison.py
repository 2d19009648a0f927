"""The challenger's gain and its significance: one bootstrap for all models, its closed form, or McNemar's test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.judge.gates import LEAST_CLUSTERS
from models.judge.verdict import Difference, Estimate
from models.metrics import bounds, classification, closed_form, mcnemar
from models.metrics.bootstrap import few_units_factor, p_value, percentile_interval, resample
from models.metrics.evaluator import effective_number
from models.metrics.metrics import Array, Metric
from models.metrics.outputs import Output, by_horizon

POWER = 0.87
"""Power of the default margin; an equal challenger passes in at least 80 % of loops, also with few resamples."""
POWER_OF_BEST = 0.95
"""Power of the default margin against the best champion so far: an equal challenger passes both comparisons in 80 %."""


@dataclass(frozen=True)
class Threshold:
    """The gain that the challenger must reach: `gain >= value` or, when strict, `gain > value`."""

    value: float
    strict: bool


@dataclass(frozen=True)
class ResampledMetrics:
    """Each model's metric, on all examples and on the same resamples of the independent units."""

    metric: Metric
    values: dict[str, float]
    resampled: dict[str, Array]
    num_units: float
    """Effective number of the independent units; less than their number if they are of unequal size."""
    units_of_terms: Mapping[str, float] = field(default_factory=dict)
    """Of each model whose bounded metric is no constant by itself: the fewest units that a term of it rests on."""
    same: frozenset[str] = frozenset()
    """Models with the challenger's own predictions, which differ from it in nothing."""

    def estimate(self, model: str, confidence: float) -> Estimate:
        """Return a model's value with its percentile interval, or the exact one where resamples never vary."""
        value, drawn = self.values[model], self.resampled[model]
        low, high = percentile_interval(drawn, confidence) or (None, None)
        num_units = self.units_of_terms.get(model)
        if low is not None and num_units is not None and self.metric.range and bounds.never_vary(drawn):
            low, high = self.metric.range.interval(value, num_units, confidence)
        return Estimate(value=value, low=low, high=high)

    def gains(self, rival: str) -> Array:
        """Return the resampled gain (resample,) of the challenger over `rival`: more is better, in any metric."""
        return self.metric.sign * (self.resampled["challenger"] - self.resampled[rival])

    def difference(self, rival: str, threshold: Threshold, confidence: float) -> Difference:
        """Return challenger minus `rival`, tested against a threshold."""
        value, drawn = self._widened(rival, confidence)
        low, high = percentile_interval(drawn, confidence) or (None, None)
        chance = p_value(self.metric.sign * drawn, threshold.value, at_threshold=not threshold.strict)
        num_units = self._units_without_difference(rival, drawn)
        if low is not None and num_units is not None:
            reach = self._span * bounds.exact_reach(num_units, confidence)
            low, high = max(-self._span, value - reach), min(self._span, value + reach)
            beyond = (self.metric.sign * value - threshold.value) / self._span
            # Models that no example tells apart are the same for every threshold that the same model reaches.
            if abs(value) > bounds.SAME and beyond > 0:
                chance = min(1.0, 2 * max(0.0, 1 - beyond) ** num_units)
        reached = chance is not None and chance < 1 - confidence
        return Difference(value=value, low=low, high=high, p_value=chance, reached=reached)

    @property
    def _span(self) -> float:
        return self.metric.range.high - self.metric.range.low if self.metric.range else 0.0

    def _units_without_difference(self, rival: str, drawn: Array) -> float | None:
        """Return the units that show no variation of a difference; None if it varies, or is exact by itself."""
        if rival in self.same or not bounds.never_vary(drawn):
            return None
        numbers = [self.units_of_terms[name] for name in ("challenger", rival) if name in self.units_of_terms]
        return min(numbers, default=None)

    def resolvable_loss(self, rival: str, confidence: float, power: float = POWER) -> float:
        """Return the default margin: with it an equal challenger is shown to be no worse than `rival` with `power`.

        It is the reach of the interval of the gain plus what an equal model loses by chance, and at least the standard
        error of the metric of `rival`, for a smaller loss is not visible in its value. 0 if there is no interval.
        """
        from scipy.special import ndtri

        value, drawn = self._widened(rival, confidence)
        gains = self.metric.sign * drawn
        low, _ = percentile_interval(gains, confidence) or (None, None)
        if low is None:
            return 0.0
        num_units = self._units_without_difference(rival, drawn)
        if num_units is not None:
            return self._span * bounds.exact_reach(num_units, 1 - (1 - confidence) * (1 - power))
        by_chance = float(ndtri(power) * np.nanstd(gains, ddof=1))
        return max(float(np.nanstd(self.resampled[rival], ddof=1)), self.metric.sign * value - low + by_chance)

    def _widened(self, rival: str, confidence: float) -> tuple[float, Array]:
        """Return challenger minus `rival`, and its resamples (resample,), widened where there are few units."""
        value = self.values["challenger"] - self.values[rival]
        drawn = self.resampled["challenger"] - self.resampled[rival]
        return value, value + few_units_factor(self.num_units, confidence) * (drawn - value)

    def loss_p_value(self, rival: str, allowed: float) -> float | None:
        """Return the p-value for a loss of the challenger of more than `allowed`, on the two-sided scale.

        It uses the bootstrap's standard error: counting resamples could not go below 2 / resamples, which a
        correction for many slices needs.

        Source: Efron and Tibshirani (1993), ch. 13.
        """
        from scipy.special import stdtr

        gains, degrees = self.gains(rival), self.num_units - 1
        if percentile_interval(gains, 0.5) is None or degrees < 1:
            return None
        error = float(np.nanstd(gains, ddof=1)) * math.sqrt(self.num_units / degrees)
        distance = self.metric.sign * (self.values["challenger"] - self.values[rival]) + allowed
        if distance >= 0:
            return 1.0
        return float(2 * stdtr(degrees, distance / error)) if error > 0 else 0.0


def resample_models(
    metric: Metric,
    target: Array,
    models: Mapping[str, Array],
    resamples: int,
    seed: int = 0,
    clusters: Array | None = None,
    weights: Array | None = None,
    least_rows: int = closed_form.LEAST_ROWS,
) -> ResampledMetrics:
    """Compute the metric of every model on the examples and on the same resamples of them.

    On `least_rows` independent examples or more, normal values of the metric's closed form stand for resamples, if it
    has one. `weights` (example,) multiply how often an example is drawn; a user's own metric takes none.
    """
    evaluators = [metric.weighted(target, prediction, weights) for prediction in models.values()]
    once = np.ones(len(target))
    values = {name: evaluator(once) for name, evaluator in zip(models, evaluators, strict=True)}
    metric_weights = weights if metric.takes_weights else None
    apart = np.arange(len(target)) if clusters is None and metric_weights is not None else clusters
    num_units = len(target) if apart is None else effective_units(metric.sizes(target, apart, metric_weights))
    terms = {
        name: _units_of_terms(metric, target, prediction, num_units, clusters, weights)
        for name, prediction in models.items()
        if metric.range is not None and bounds.varies(prediction)
    }
    drawn = None
    units = [num_units / least_rows, *(number / closed_form.LEAST_UNITS for number in terms.values())]
    if clusters is None and min(units) >= 1:
        prepared = [metric.prepare(target, prediction) for prediction in models.values()]
        drawn = closed_form.normal_values(prepared, once if metric_weights is None else metric_weights, resamples)
    if drawn is None:
        drawn = resample(evaluators, len(target), resamples, seed, clusters)
    resampled = {name: drawn[:, column] for column, name in enumerate(models)}
    challenger = models.get("challenger")
    same = frozenset(
        name for name, prediction in models.items() if challenger is not None and np.array_equal(prediction, challenger)
    )
    return ResampledMetrics(metric, values, resampled, num_units, terms, same)


def _units_of_terms(
    metric: Metric, target: Array, prediction: Array, num_units: float, clusters: Array | None, weights: Array | None
) -> float:
    if metric.range is None or metric.is_of_groups:
        return num_units
    return bounds.least_units(metric.range.terms(target, prediction), clusters, weights)


def horizon_estimates(
    metric: Metric,
    outputs: Sequence[Output],
    target: Array,
    prediction: Array,
    confidence: float,
    resamples: int,
    seed: int = 0,
    clusters: Array | None = None,
) -> dict[str, Estimate]:
    """Return the metric at each horizon by itself, with its interval, by horizon; empty for other outputs.

    The resamples are those of `resample_models`.

    Args:
        metric: That of all outputs.
        outputs: The outputs of an example.
        target: True values (example, output).
        prediction: Predictions (example, output).
        confidence: Of the intervals.
        resamples: Number of resamples.
        seed: The same seed gives the same intervals.
        clusters: Cluster numbers (example,) from 0 on.

    Cost: `resamples` x outputs x examples.
    """
    of_some = metric.of_some
    if of_some is None or not all(output.horizon for output in outputs):
        return {}
    horizons = by_horizon(outputs)
    evaluators = [
        of_some([outputs[place] for place in columns])(target[:, columns], prediction[:, columns])
        for columns in horizons.values()
    ]
    drawn, once = resample(evaluators, len(target), resamples, seed, clusters), np.ones(len(target))
    estimates = {}
    for index, name in enumerate(horizons):
        low, high = percentile_interval(drawn[:, index], confidence) or (None, None)
        value = evaluators[index](once)
        if low is not None and metric.range and bounds.never_vary(drawn[:, index]):
            places = horizons[name]
            num_units = bounds.least_units(metric.range.terms(target[:, places], prediction[:, places]), clusters, None)
            low, high = metric.range.interval(value, num_units, confidence)
        estimates[name] = Estimate(value=value, low=low, high=high)
    return estimates


def effective_units(sizes: Array) -> float:
    """Return how many clusters of equal size are as informative, if a cluster's examples share an effect.

    At least `LEAST_CLUSTERS`, or all if there are fewer: one cluster that holds nearly everything must not make the
    default margin unlimited.
    """
    return max(float(min(LEAST_CLUSTERS, len(sizes))), effective_number(sizes))


def mcnemar_resolvable_loss(
    target: Array, challenger: Array, champion: Array, confidence: float, power: float = POWER
) -> float:
    """Return the default margin of `mcnemar_difference`, by the same rule as `ResampledMetrics.resolvable_loss`."""
    from scipy.special import ndtri

    share = float((classification.predicted_class(champion) == target).mean())
    error = mcnemar.difference(mcnemar.discordant(target, challenger, champion), confidence)[3]
    return max(math.sqrt(share * (1 - share) / len(target)), float(ndtri((1 + confidence) / 2) + ndtri(power)) * error)


def mcnemar_difference(
    target: Array, challenger: Array, champion: Array, threshold: Threshold, confidence: float
) -> Difference:
    """Return the challenger's gain in accuracy, tested by McNemar's mid-p test, or by an interval if there is a margin.

    Each example counts as independent of the others.
    """
    counts = mcnemar.discordant(target, challenger, champion)
    gain, low, high, error = mcnemar.difference(counts, confidence)
    if threshold.value == 0:
        chance = mcnemar.midp(counts)
        never_differ = counts.challenger + counts.champion == 0
        reached = (gain > 0 and chance < 1 - confidence) or (never_differ and not threshold.strict)
    else:
        beyond = (gain - threshold.value) / error
        chance = math.erfc(beyond / math.sqrt(2)) if beyond > 0 else 1.0
        reached = chance < 1 - confidence
    return Difference(value=gain, low=low, high=high, p_value=chance, reached=reached)
