"""The learner of an estimator: a model for each output, quantile or label, or one model of all classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.estimators.inputs import InputPlan, Matrix
from models.estimators.libraries import FitData, Functions
from models.estimators.rows import LEAST_CHANCE, Output
from models.estimators.stored import OutputModel, StoredEstimator
from models.kinds.task import Link, PerLink

Array = NDArray[Any]


class OutputRows(NamedTuple):
    """What the model of an output learns.

    Attributes:
        target: Codes of classes, or standardised numbers (row,).
        weight: Of the rows (row,); None: all ones.
        num_classes: Of the output, also those that no row has; 0 for a number.
        quantile: The quantile of the target that is learnt, or None.
    """

    target: Array
    weight: Array | None
    num_classes: int
    quantile: float | None = None


@dataclass(frozen=True)
class Fit:
    """What does not change while an estimator learns.

    Attributes:
        functions: Of its library.
        plan: How its matrix is made.
        task: The goal's task.
        loss: The goal's loss, such as mse or cross_entropy.
        arguments: Of the spec.
        threads: At most so many.
    """

    functions: Functions
    plan: InputPlan
    task: str
    loss: str
    arguments: Mapping[str, Any]
    threads: int


def grown(
    fit: Fit,
    features: Matrix,
    outputs: Sequence[OutputRows],
    before: StoredEstimator | None,
    rounds: int,
    seed: int,
) -> StoredEstimator:
    """Return the estimator after so many more rounds.

    Args:
        fit: What does not change.
        features: Numbers, then indices of categories (row, input).
        outputs: What the model of each output learns.
        before: The estimator so far, or None.
        rounds: More rounds.
        seed: Of these rounds.
    """
    matrix = fit.plan.matrix(features)
    categorical = () if fit.plan.one_hot else tuple(range(fit.plan.num_numbers, features.shape[1]))
    settings = {**fit.arguments, "rounds": rounds, "seed": seed, "threads": fit.threads}
    models = []
    for index, rows in enumerate(outputs):
        codes, target = _present(rows)
        if len(codes) == 1:  # no library learns from one class
            models.append(OutputModel(codes, b""))
            continue
        data = FitData(
            x=matrix,
            y=target,
            weight=None if rows.weight is None else np.asarray(rows.weight, np.float64),
            task=fit.task,
            classes=len(codes),
            categorical=categorical,
            quantile=rows.quantile,
            loss=_loss(fit.loss, len(codes)),
        )
        model_before = None if before is None else before.outputs[index].model
        models.append(OutputModel(codes, fit.functions.fit(data, settings, model_before)))
    return StoredEstimator(fit.plan, models)


def _present(rows: OutputRows) -> tuple[tuple[int, ...], Array]:
    """Return the classes that rows have, ascending, and the target by their positions; of a number the target."""
    if not rows.num_classes:
        return (), np.asarray(rows.target, np.float64)
    classes, positions = np.unique(np.asarray(rows.target, np.int64), return_inverse=True)
    return tuple(int(code) for code in classes), positions.astype(np.int64)


def _loss(loss: str, num_classes: int) -> str:
    """Return the loss of the goal for the classes that the rows have: two of three are learnt as two."""
    return {2: "bce"}.get(num_classes, loss)


def cut(first: Callable[[bytes, int], bytes], estimator: StoredEstimator, rounds: int) -> StoredEstimator:
    """Return the estimator after its first rounds.

    Args:
        first: Of its library.
        estimator: After more rounds.
        rounds: The rounds that are left.
    """
    outputs = [
        OutputModel(output.classes, first(output.model, rounds) if output.model else b"")
        for output in estimator.outputs
    ]
    return StoredEstimator(estimator.plan, outputs)


def raw_outputs(
    functions: Functions, output: Output, estimator: StoredEstimator, link: Link, num_classes: int, features: Matrix
) -> NDArray[np.float64]:
    """Return logits of two classes or labels, scores of several classes, or standardised numbers (row, output).

    Args:
        functions: Of the estimator's library.
        output: What its predictions are.
        estimator: What it learnt.
        link: Of the goal's task.
        num_classes: Of each output, also those that no row has; 0 for numbers.
        features: Numbers, then indices of categories (row, input).
    """
    matrix = estimator.plan.matrix(features)
    columns = []
    for model in estimator.outputs:
        raw = functions.predict(model.model, matrix) if model.model else np.zeros((len(matrix), 1))
        columns.append(_OUTPUTS[link](class_scores(raw, model.classes, num_classes, output)))
    return np.concatenate(columns, axis=1)


def class_scores(raw: Array, codes: Sequence[int], num_classes: int, output: Output) -> NDArray[np.float64]:
    """Return a score of each class, whose softmax is its chance, for the predictions of a model (row, class).

    Probabilities are cut at `LEAST_CHANCE`, and a class that no training row has gets its logarithm. A number stays.

    Args:
        raw: Probabilities or scores (row, class), of two classes also those of the second alone (row,).
        codes: Of the classes that the model learnt; empty for a number.
        num_classes: Of the output; 0 for a number.
        output: What `raw` is.
    """
    values = np.asarray(raw, np.float64).reshape(len(raw), -1)
    if not num_classes:
        return values
    if len(codes) == 2 and values.shape[1] == 1:
        values = np.concatenate([_FIRST_OF_TWO[output](values), values], axis=1)
    if output == "probabilities" and len(codes) > 1:
        values = np.log(np.clip(values, LEAST_CHANCE, 1 - LEAST_CHANCE))
    scores = np.full((len(values), num_classes), np.log(LEAST_CHANCE))
    scores[:, list(codes)] = values
    return scores


_FIRST_OF_TWO: dict[Output, Callable[[Array], Array]] = {
    "probabilities": lambda second: 1 - second,
    "scores": np.zeros_like,
}


def _scores(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    return scores


def _logit(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    return scores[:, [1]] - scores[:, [0]]


_OUTPUTS: PerLink[Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "logistic": _logit,
    "softmax": _scores,
    "identity": _scores,
    "text": _scores,  # estimators take no texts: refused before
}
