"""The conformance suite of metrics: what the verdict relies on, of a row `METRIC`, by task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from models.errors import UserCodeError
from models.kinds.task import PerTask, Task
from models.metrics.evaluator import Array
from models.metrics.metrics import UNITS, Metric, resolve_metric
from models.metrics.own_metric import METRIC
from models.project_spec.conformance import READ, Claim
from models.project_spec.row_source import read_row

NUM_EXAMPLES = 60
SAME = 1e-9
"""Relative difference of two values that count as the same: sums in another order differ in the last bits."""


class Predictions(NamedTuple):
    """Targets, predictions that are nearly right, and ones that are wrong, as `metrics.py` describes them."""

    target: Array
    right: Array
    wrong: Array


def metric_claims(reference: str, base: Path) -> Iterator[Claim]:
    """Yield the claims on a row `METRIC`, for each of its tasks.

    Raises:
        UsageError: The row is none.
    """
    row = read_row(reference, base, METRIC, "METRIC")
    yield Claim(READ, lambda: None)
    tasks: Sequence[Task] = row["tasks"]
    for task in tasks:
        for text, check in CLAIMS.items():
            yield Claim(f"{task}: {text}", partial(_checked, check, reference, base, task))


def _checked(check: Callable[[Metric, Predictions], None], reference: str, base: Path, task: Task) -> None:
    check(resolve_metric(reference, task, base), EXAMPLES[task](np.random.default_rng(0)))


def _is_a_number(metric: Metric, predictions: Predictions) -> None:
    for prediction in (predictions.right, predictions.wrong):
        metric.value(predictions.target, prediction)


def _is_pure(metric: Metric, predictions: Predictions) -> None:
    before = [array.copy() for array in predictions]
    first, second = (metric.value(predictions.target, predictions.right) for _ in range(2))
    _expect_same(first, second, "a second call")
    for name, array, copy in zip(Predictions._fields, predictions, before, strict=True):
        if not np.array_equal(array, copy):
            raise UserCodeError(f"it changes its argument {name}: work on a copy")


def _has_no_order(metric: Metric, predictions: Predictions) -> None:
    order = np.random.default_rng(1).permutation(NUM_EXAMPLES)
    value = metric.value(predictions.target, predictions.right)
    _expect_same(value, metric.value(predictions.target[order], predictions.right[order]), "the same rows shuffled")


def _has_its_direction(metric: Metric, predictions: Predictions) -> None:
    right, wrong = (metric.value(predictions.target, values) for values in (predictions.right, predictions.wrong))
    if metric.sign * (right - wrong) < 0:
        raise UserCodeError(
            f"right predictions have {right:g} and wrong ones {wrong:g}, but direction is {metric.direction}: correct "
            "the direction or the function"
        )


def _counts_weights(metric: Metric, predictions: Predictions) -> None:
    clusters = metric.units(predictions.target)
    numbers = np.arange(NUM_EXAMPLES) if clusters is None else clusters
    weights = np.random.default_rng(2).integers(0, 3, NUM_EXAMPLES)[numbers].astype(np.float64)
    index, targets = UNITS[metric.tasks[0]].drawn(predictions.target, weights)
    repeated = metric.value(targets, predictions.right[index])
    _expect_same(repeated, metric.value(predictions.target, predictions.right, weights), "weights 0, 1 and 2 instead")


def _expect_same(value: float, other: float, case: str) -> None:
    if abs(value - other) > SAME * max(1.0, abs(value)):
        raise UserCodeError(f"it returns {value!r}, and {other!r} for {case}: expected the same")


CLAIMS: dict[str, Callable[[Metric, Predictions], None]] = {
    "it returns a finite number": _is_a_number,
    "it returns the same again and leaves its arguments alone": _is_pure,
    "the order of the rows does not matter": _has_no_order,
    "right predictions are no worse than wrong ones": _has_its_direction,
    "a row of weight 2 counts as the row twice, one of weight 0 not at all": _counts_weights,
}


def _of_two_classes(shape: tuple[int, ...], rng: np.random.Generator) -> Predictions:
    target = rng.integers(0, 2, shape)
    right = np.where(target == 1, rng.uniform(0.6, 1, shape), rng.uniform(0, 0.4, shape))
    return Predictions(target, right, 1 - right)


def _of_classes(rng: np.random.Generator) -> Predictions:
    target = rng.integers(0, 3, NUM_EXAMPLES)
    right = np.eye(3)[target] * 2 + rng.uniform(0, 1, (NUM_EXAMPLES, 3))
    right /= right.sum(axis=1, keepdims=True)
    return Predictions(target, right, np.roll(right, 1, axis=1))


def _of_numbers(rng: np.random.Generator) -> Predictions:
    target = rng.uniform(1, 9, NUM_EXAMPLES)
    return Predictions(target, target + rng.normal(0, 0.1, NUM_EXAMPLES), target + rng.choice([-5, 5], NUM_EXAMPLES))


def _of_quantiles(rng: np.random.Generator) -> Predictions:
    numbers = _of_numbers(rng)
    apart = np.array([-0.5, 0.5])
    target, right, wrong = (values[:, None] + apart * (values is not numbers.target) for values in numbers)
    return Predictions(target, right, wrong)


def _of_texts(rng: np.random.Generator) -> Predictions:
    shape = (NUM_EXAMPLES, 8)
    return Predictions(rng.integers(97, 123, shape), rng.uniform(0, 1, shape), rng.uniform(5, 9, shape))


def _of_groups(rng: np.random.Generator) -> Predictions:
    grade, group = rng.integers(0, 4, NUM_EXAMPLES), np.arange(NUM_EXAMPLES) // 6
    right = grade + rng.uniform(0, 0.5, NUM_EXAMPLES)
    return Predictions(np.stack([grade, group], axis=1), right, -right)


EXAMPLES: PerTask[Callable[[np.random.Generator], Predictions]] = {
    "binary": partial(_of_two_classes, (NUM_EXAMPLES,)),
    "multiclass": _of_classes,
    "multilabel": partial(_of_two_classes, (NUM_EXAMPLES, 2)),
    "regression": _of_numbers,
    "quantile": _of_quantiles,
    "language": _of_texts,
    "ranking": _of_groups,
}
