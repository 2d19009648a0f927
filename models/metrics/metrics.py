"""The table of metrics, the lookup by name or reference, and the function that checks arrays and computes a value.

The formulas are in `classification.py`, `regression.py`, `outputs.py`, `language.py` and `ranking.py`. Targets are
class indices (int64) or floats in the target's own unit; predictions are as in `classification.py`; text as in
`language.py`; several outputs as in `outputs.py`; grades with their groups as in `ranking.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from models.errors import DataError, UsageError, UserCodeError, did_you_mean
from models.kinds.task import TASKS, PerTask, Task
from models.metrics import bounds, classification, language, outputs, ranking, regression
from models.metrics.evaluator import Evaluator
from models.metrics.outputs import Output, Prepare
from models.metrics.own_metric import METRIC, Drawn, load_metric, own_prepare
from models.project_spec import references
from models.project_spec.row_source import row_name

Array = NDArray[Any]
Direction = Literal["maximize", "minimize"]

_CLASSES: tuple[Task, ...] = ("binary", "multiclass", "multilabel")
_ONE_CLASS: tuple[Task, ...] = ("binary", "multiclass")
_NUMBERS: tuple[Task, ...] = ("regression",)
_QUANTILES: tuple[Task, ...] = ("quantile",)
_RANKS: tuple[Task, ...] = ("ranking",)


class MetricUnits(NamedTuple):
    """What counts as one in a task's metrics, and is drawn whole.

    Attributes:
        of: Returns the clusters that no resample may divide, from the target; None if there are none.
        sizes: Returns how much each cluster weighs, from target, clusters (example,) and weights (example,).
        drawn: Returns the examples of whole-number weights.
        undefined: Says in what examples lack that have no value of a metric, and the cure.
    """

    of: Callable[[Array], Array | None]
    sizes: Callable[[Array, Array, Array | None], Array]
    drawn: Drawn
    undefined: Callable[[Array], str]


def _no_clusters(target: Array) -> None:
    del target


def _by_examples(target: Array, clusters: Array, weights: Array | None) -> Array:
    del target
    return np.bincount(clusters, weights)


def _repeated(target: Array, weight: Array) -> tuple[Array, Array]:
    index = np.repeat(np.arange(len(target)), weight.astype(np.int64))
    return index, target[index]


def _few_values(target: Array) -> str:
    num = len(np.unique(target))
    return f" with {num} distinct target(s): expected at least two; take more rows or another split"


def _groups_alike(target: Array, clusters: Array, weights: Array | None) -> Array:
    """Return 1 for each group; one without an order is left out, since every order of it is right."""
    del weights
    return np.ones(len(np.unique(clusters[ranking.has_order(target)])))


def _no_order(target: Array) -> str:
    del target
    return ", of which no group has two different grades, so every order is right: give more groups"


_EXAMPLES = MetricUnits(_no_clusters, _by_examples, _repeated, _few_values)
UNITS: PerTask[MetricUnits] = {
    "binary": _EXAMPLES,
    "multiclass": _EXAMPLES,
    "multilabel": _EXAMPLES,
    "regression": _EXAMPLES,
    "quantile": _EXAMPLES,
    "language": _EXAMPLES,
    "ranking": MetricUnits(ranking.groups_of, _groups_alike, ranking.drawn, _no_order),
}
_STEMS: PerTask[list[str]] = {
    "binary": [],
    "multiclass": [],
    "multilabel": [],
    "regression": ["pinball"],
    "quantile": [],
    "language": [],
    "ranking": [],
}
"""Names of metrics that a number follows, as in `pinball_0.9`."""


@dataclass(frozen=True)
class Metric:
    """A measure of predictions, and the direction in which it is better.

    `prepare` takes target and prediction, each with one entry for each example, and returns their evaluator. `join`
    makes of it the same of a model with several outputs; None: `prepare` takes several outputs itself.
    """

    name: str
    direction: Direction
    tasks: tuple[Task, ...]
    prepare: Prepare
    takes_weights: bool = True
    """Its evaluator counts fractions of examples; else whole-number weights repeat them."""
    decides: bool = False
    """It looks at the predicted classes or labels only, so it depends on the decision."""
    join: Callable[[Prepare, Sequence[Output]], Prepare] | None = None
    of_some: Callable[[Sequence[Output]], Prepare] | None = None
    """The same of some of the outputs by themselves, where `prepare` takes all."""
    range: bounds.Range | None = None
    """Its lowest and highest value; None: unlimited, or a user's own."""

    @property
    def sign(self) -> int:
        """1 when more is better, -1 when less is."""
        return 1 if self.direction == "maximize" else -1

    @property
    def is_of_groups(self) -> bool:
        """Whether a value needs whole groups of examples, as that of a ranking."""
        return TASKS[self.tasks[0]].is_grouped

    def units(self, target: Array) -> Array | None:
        """Return the clusters (example,) that no resample may divide: the groups of a ranking; None for others."""
        return UNITS[self.tasks[0]].of(target)

    def sizes(self, target: Array, clusters: Array, weights: Array | None = None) -> Array:
        """Return how much each cluster weighs in the metric (cluster,): its number of examples, or their `weights`.

        In a metric of a ranking every group weighs the same, and one without an order nothing: it is left out. What an
        own metric does with groups is not known, so their examples count.
        """
        sizes = UNITS[self.tasks[0]].sizes if self.takes_weights else _by_examples
        return sizes(target, clusters, weights)

    def at(self, threshold: classification.Decision) -> Metric:
        """Return the metric of other decisions than the likeliest class; itself if it makes none."""
        if not self.decides or (isinstance(threshold, float) and threshold == 0.5):
            return self

        def prepare(target: Array, prediction: Array) -> Evaluator:
            return self.prepare(target, classification.at_threshold(prediction, threshold))

        def terms(target: Array, prediction: Array) -> list[Array]:
            return self.range.terms(target, classification.at_threshold(prediction, threshold)) if self.range else []

        return replace(self, prepare=prepare, range=self.range and replace(self.range, terms=terms))

    def of(self, outputs: Sequence[Output]) -> Metric:
        """Return the metric of a model with these outputs; itself if there are none."""
        if not outputs or self.join is None:
            return self
        return replace(
            self, prepare=self.join(self.prepare, outputs), join=None, of_some=partial(self.join, self.prepare)
        )

    def value(self, target: Array, prediction: Array, weight: Array | None = None) -> float:
        """Return the metric's value; NaN where it is undefined (one class only, constant target).

        Args:
            target: One entry for each example.
            prediction: One entry for each example.
            weight: Float64 >= 0 (example,); None for all ones.

        Raises:
            UserCodeError: Your own metric raised, or returned no finite number.
        """
        return self.prepare(target, prediction)(np.ones(len(target)) if weight is None else weight)

    def evaluator(self, target: Array, prediction: Array) -> Evaluator:
        """Return the metric of one model's predictions as a function of the examples' weights.

        A metric of your own that raises on a resample (e.g. one with a single class) is undefined on it.
        """
        prepared = self.prepare(target, prediction)

        def value(weight: Array) -> float:
            try:
                return prepared(weight)
            except UserCodeError:
                return float("nan")

        return value

    def weighted(self, target: Array, prediction: Array, weight: Array | None) -> Evaluator:
        """Return the metric as a function of how often examples are drawn, each of which counts by its own weight.

        A metric of your own takes no weights.
        """
        evaluate = self.evaluator(target, prediction)
        return evaluate if weight is None or not self.takes_weights else lambda drawn: evaluate(drawn * weight)


METRICS: dict[str, Metric] = {
    metric.name: replace(metric, range=bounds.RANGES.get(metric.name))
    for metric in (
        Metric("roc_auc", "maximize", _CLASSES, classification.roc_auc, join=outputs.over_labels),
        Metric("pr_auc", "maximize", _CLASSES, classification.pr_auc, join=outputs.over_labels),
        Metric("accuracy", "maximize", _CLASSES, classification.accuracy, decides=True, join=outputs.exact_match),
        Metric("balanced_accuracy", "maximize", _ONE_CLASS, classification.balanced_accuracy, decides=True),
        Metric("precision", "maximize", _CLASSES, classification.precision, decides=True, join=outputs.over_labels),
        Metric("recall", "maximize", _CLASSES, classification.recall, decides=True, join=outputs.over_labels),
        Metric("f1", "maximize", _CLASSES, classification.f1, decides=True, join=outputs.over_labels),
        Metric("f1_micro", "maximize", ("multilabel",), outputs.f1_micro, decides=True),
        Metric("log_loss", "minimize", _CLASSES, classification.log_loss, join=outputs.over_labels),
        Metric("brier", "minimize", _CLASSES, classification.brier, join=outputs.over_labels),
        Metric("ece", "minimize", _CLASSES, classification.ece, join=outputs.over_labels),
        Metric("mae", "minimize", _NUMBERS, regression.mae, join=outputs.scaled_over_targets),
        Metric("rmse", "minimize", _NUMBERS, regression.rmse, join=outputs.scaled_over_targets),
        Metric("r2", "maximize", _NUMBERS, regression.r2, join=outputs.over_targets),
        Metric("mape", "minimize", _NUMBERS, regression.mape, join=outputs.over_targets),
        Metric("pinball", "minimize", _QUANTILES, outputs.needs_outputs, join=outputs.pinball),
        Metric("coverage_gap", "minimize", _QUANTILES, outputs.needs_outputs, join=outputs.coverage_gap),
        Metric("bits_per_char", "minimize", ("language",), language.bits_per_char),
        Metric("ndcg", "maximize", _RANKS, ranking.ndcg),
        Metric("map", "maximize", _RANKS, ranking.average_precision),
        Metric("mrr", "maximize", _RANKS, ranking.reciprocal_rank),
    )
}
_TAKEN = {*METRICS, "loss"}


def metrics_for(task: Task, outputs: Sequence[Output] = ()) -> list[Metric]:
    """Return every built-in metric of a task, and of several outputs if there are, the default one first."""
    fitting = [metric.of(outputs) for metric in METRICS.values() if task in metric.tasks]
    return sorted(fitting, key=lambda metric: metric.name != TASKS[task].metric)


class MetricChoice(Protocol):
    """Who names a metric: the `goal` of a spec, or a training job."""

    @property
    def reference(self) -> str | None:
        """The metric as `resolve_metric` reads it."""

    @property
    def direction(self) -> Direction | None:
        """Which values are better; None: the metric's own direction."""


class ScoredModel(Protocol):
    """What a metric must know of a model: its `Preparation`, or the evidence of a verdict."""

    @property
    def task(self) -> Task:
        """What it predicts."""

    @property
    def outputs(self) -> Sequence[Output]:
        """The outputs of an example, if there are several."""


def metric_of(choice: MetricChoice, model: ScoredModel, base: Path) -> Metric:
    """Return the metric of a goal or a job for a model, as `resolve_metric`; `base` is the project's folder."""
    return resolve_metric(choice.reference, model.task, base, choice.direction, model.outputs)


def resolve_metric(
    reference: str | None,
    task: Task,
    base: Path,
    direction: Direction | None = None,
    outputs: Sequence[Output] = (),
) -> Metric:
    """Return the metric that `goal.metric` names; None is the default metric of the task.

    A metric of your own is a function `(target, prediction) -> float` and needs `direction`, or a row `METRIC` that
    has its direction. Of a model with several outputs it takes arrays (example, output).

    Raises:
        UsageError: No such metric, not one for this task, or a direction that is missing or contradicts.
        UserCodeError: The file that holds your metric raised on import.
    """
    name = reference or TASKS[task].metric
    quantile = quantile_of(name)
    if quantile is not None and task in _NUMBERS:
        prepare = partial(regression.pinball, quantile=quantile)
        return Metric(name, "minimize", _NUMBERS, prepare, join=METRICS["mae"].join).of(outputs)
    costs = costs_of(name)
    if costs is not None:
        if not TASKS[task].has_positive:
            raise UsageError(f"goal.costs is for two classes, but the task is {task}: take metric log_loss or accuracy")
        false_positive, false_negative = costs
        cost = partial(classification.cost, false_positive=false_positive, false_negative=false_negative)
        highest_cost = bounds.Range(0.0, max(costs), bounds.all_examples)
        return Metric(name, "minimize", ("binary",), cost, decides=True, range=highest_cost)
    if references.is_own_code(name):
        row = load_metric(name, base, task, direction)
        evaluate = own_prepare(row, name, UNITS[task].drawn)
        return Metric(metric_name(name), row["direction"], (task,), evaluate, takes_weights=row["weights"])
    short, places = ranking.cutoff_of(name) or (name, None)
    if short not in METRICS:
        raise UsageError(_unknown_metric(name, task))
    metric = METRICS[short]
    if task not in metric.tasks:
        fitting = ", ".join(candidate.name for candidate in metrics_for(task))
        raise UsageError(
            f"goal.metric: got {name!r}, which is for {' and '.join(metric.tasks)}, expected one for {task}: {fitting}"
        )
    if direction not in (None, metric.direction):
        raise UsageError(f"goal.direction: got {direction!r}, but {name} is to {metric.direction}: leave it out")
    if places is not None:
        metric = replace(metric, name=name, prepare=ranking.of_first_places(short, places))
    return metric.of(outputs)


def quantile_of(name: str) -> float | None:
    """Return the quantile of a metric `pinball_<quantile>`; None for all others."""
    match = re.fullmatch(r"pinball_(0?\.\d+|\d(?:\.\d+)?e-\d+)", name)
    return float(match[1]) if match else None


def quantiles_of(outputs: Sequence[Output], metric: str = "") -> list[float]:
    """Return the quantiles that are predicted of each true value: those of the outputs, or of a metric `pinball_`.

    None are, if another prediction than quantiles is the best by the metric.
    """
    quantile = quantile_of(metric)
    levels = dict.fromkeys(output.quantile for output in outputs if output.quantile is not None)
    return list(levels) if quantile is None else [quantile]


def is_ready(name: str) -> bool:
    """Return whether a name is one of Loopline's metrics, with a quantile, costs or a number of places or without."""
    stem = (ranking.cutoff_of(name) or (name,))[0]
    return stem in METRICS or quantile_of(name) is not None or costs_of(name) is not None


def is_of_numbers(name: str | None) -> bool:
    """Return whether a metric of this name judges nothing but numbers."""
    if name is None:
        return False
    return quantile_of(name) is not None or (name in METRICS and METRICS[name].tasks == _NUMBERS)


def costs_of(name: str) -> tuple[float, float] | None:
    """Return the costs of a false positive and a false negative of a metric `cost_<fp>_<fn>`; None for all others."""
    match = re.fullmatch(r"cost_([\d.e+-]+)_([\d.e+-]+)", name)
    return (float(match[1]), float(match[2])) if match else None


def measure(metric: Metric, target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Return the metric's value on these examples, or raise an error that says why there is none.

    A metric of your own takes no weights.

    Raises:
        DataError: Empty or ill-shaped arrays, values that are not finite, or a metric undefined here.
        UserCodeError: Your own metric raised, or returned no finite number.
    """
    check_examples(target, prediction)
    value = metric.value(target, prediction, weight if metric.takes_weights else None)
    if math.isnan(value):
        raise _undefined(metric, target)
    return value


def _undefined(metric: Metric, target: Array) -> DataError:
    facts, num_zeros = f"{metric.name} is undefined on {len(target)} examples", int((np.asarray(target) == 0).sum())
    if metric.name == "mape" and num_zeros:
        return DataError(
            f"{facts} of which {num_zeros} have the target 0, by which it divides: expected none; take goal.metric mae"
        )
    return DataError(f"{facts}{UNITS[metric.tasks[0]].undefined(target)}")


def check_examples(target: Array, prediction: Array) -> None:
    """Refuse arrays for which no metric can be computed.

    Raises:
        DataError: Empty, of different lengths, or with values that are not finite.
    """
    if len(target) == 0 or len(target) != len(prediction):
        raise DataError(
            f"got {len(target)} targets and {len(prediction)} predictions, expected as many and at least one"
        )
    bad = int(np.size(prediction) - np.isfinite(prediction).sum())
    if bad:
        raise DataError(f"{bad} of {np.size(prediction)} predictions are NaN or infinite: the model has diverged")
    if np.asarray(target).dtype.kind == "f" and not np.isfinite(target).all():
        raise DataError(f"{int((~np.isfinite(target)).sum())} of {len(target)} targets are NaN or infinite: drop them")


def metric_name(reference: str) -> str:
    """Return a metric's name in figures, records and stores, unless reserved: of your own its function's or row's."""
    name = row_name(reference, METRIC.name) if references.is_own_code(reference) else reference
    return reference if name in _TAKEN else name


def _unknown_metric(name: str, task: Task) -> str:
    fitting = [metric.name for metric in metrics_for(task)]
    fitting += _STEMS[task]
    stem, _, places = name.partition("_at_")
    cure = did_you_mean(stem, fitting, "for your own function write ./file.py:name")
    metric_name = f"{stem}@{places}" if places else name
    return f"goal.metric: got {metric_name!r}, expected one of {', '.join(fitting)}; {cure}"
