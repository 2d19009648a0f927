"""A probe of an estimator: forty drawn rows, fitted twice, converted, joined and compared, before the first trial.

Some converters write a valid graph of another model without a word. The probe finds them for a second, where a search
would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.errors import TrainingError
from models.estimators.agreement import check_agreement, difference, run_graph
from models.estimators.checks import check_task
from models.estimators.inputs import Matrix, input_plan
from models.estimators.learner import Fit, OutputRows, grown, raw_outputs
from models.estimators.libraries import Functions, functions_of
from models.estimators.rows import EstimatorRow
from models.estimators.source import row_of_source
from models.estimators.stored import OutputModel, StoredEstimator, pack
from models.kinds.task import TASK_NAMES, TASKS, PerTask, Task

NUM_NUMBERS = 8
"""Columns of numbers: a pipeline may choose or join so many, such as `PCA(5)`."""
NUM_ROWS = 40
"""Drawn rows; twice the neighbours of an estimator that asks for more."""
ROUNDS = 4
"""Rounds of each of two epochs."""
GAPS = 0.15
"""The share of numbers that is missing, for an estimator that takes gaps."""
CARDINALITY = 4
SEED = 1


class Draw(NamedTuple):
    """Drawn rows.

    Attributes:
        features: Numbers, the third of few values, then the index of a category or none (row, input).
        cardinalities: Of the category.
        ranks: The place of each row in the order of what a target may depend on (row,).
        weights: Of the rows (row,), or None.
    """

    features: Matrix
    cardinalities: tuple[int, ...]
    ranks: NDArray[np.int64]
    weights: NDArray[np.float64] | None


def probe(row: EstimatorRow, functions: Functions, task: Task, arguments: Mapping[str, Any], where: str) -> float:
    """Return the largest difference between an estimator and its graph.

    Args:
        row: The facts about it.
        functions: How it learns and answers.
        task: What it learns.
        arguments: Of the spec; its rounds do not count.
        where: What messages begin with.

    Raises:
        TrainingError: The graph differs, does not run or cannot be made, or equal fits have different bytes.
        UserCodeError: The library refuses the arguments, or the team's own row raised.
    """
    neighbours = arguments.get(row.neighbours)
    num_rows = max(NUM_ROWS, 2 * neighbours if isinstance(neighbours, int) else 0)
    return max(
        _probe(row, functions, task, arguments, _drawn(row, num_rows, with_category), where)
        for with_category in (False, True)
    )


def _drawn(row: EstimatorRow, num_rows: int, with_category: bool) -> Draw:
    rng = np.random.default_rng(SEED)
    numbers = rng.normal(size=(num_rows, NUM_NUMBERS))
    numbers[:, 2] = rng.integers(0, 5, num_rows)
    index = rng.integers(0, CARDINALITY, num_rows)
    weights = rng.uniform(0.5, 1.5, num_rows) if row.weights and with_category else None
    signal = numbers[:, 0] + numbers[:, 1] ** 2 + numbers[:, 2] + (index == 1) * with_category
    if row.gaps:
        numbers[rng.random(numbers.shape) < GAPS] = np.nan
    columns = [numbers, index[:, None]] if with_category else [numbers]
    cardinalities = (CARDINALITY,) if with_category else ()
    return Draw(np.concatenate(columns, axis=1, dtype=np.float32), cardinalities, signal.argsort().argsort(), weights)


def _codes(draw: Draw, num_classes: int) -> NDArray[np.int64]:
    codes: NDArray[np.int64] = draw.ranks * num_classes // len(draw.ranks)
    return codes


def _two_classes(draw: Draw) -> list[OutputRows]:
    return [OutputRows(_codes(draw, 2), draw.weights, 2)]


def _classes(draw: Draw) -> list[OutputRows]:
    """Return four classes, of which no row has the third."""
    return [OutputRows(np.array([0, 1, 3])[_codes(draw, 3)], draw.weights, 4)]


def _labels(draw: Draw) -> list[OutputRows]:
    """Return two labels and one that no row has."""
    labels = (_codes(draw, 2), _codes(draw, 4) % 2, np.zeros_like(draw.ranks))
    return [OutputRows(label, draw.weights, 2) for label in labels]


def _standardised(draw: Draw) -> NDArray[np.float64]:
    values: NDArray[np.float64] = (draw.ranks - draw.ranks.mean()) / draw.ranks.std()
    return values


def _numbers(draw: Draw) -> list[OutputRows]:
    values = _standardised(draw)
    return [OutputRows(target, draw.weights, 0) for target in (values, values**2 - 1)]


def _quantiles(draw: Draw) -> list[OutputRows]:
    return [OutputRows(_standardised(draw), draw.weights, 0, quantile) for quantile in (0.1, 0.5)]


def _refused(draw: Draw) -> list[OutputRows]:
    raise TrainingError("model.net: estimators learn neither text nor rankings: take a family of the product")


class Outputs(NamedTuple):
    """What is learnt of drawn rows for a task: the targets of its outputs, and its usual loss."""

    targets: Callable[[Draw], list[OutputRows]]
    loss: str


OUTPUTS: PerTask[Outputs] = {
    "binary": Outputs(_two_classes, "bce"),
    "multiclass": Outputs(_classes, "cross_entropy"),
    "multilabel": Outputs(_labels, "bce"),
    "regression": Outputs(_numbers, "mse"),
    "quantile": Outputs(_quantiles, "pinball"),
    "language": Outputs(_refused, ""),
    "ranking": Outputs(_refused, ""),
}


def _probe(
    row: EstimatorRow, functions: Functions, task: Task, arguments: Mapping[str, Any], draw: Draw, where: str
) -> float:
    from models.estimators.joined import join
    from models.estimators.one_form import INPUT, OUTPUT, as_model
    from models.inputs.graph_builder import GraphBuilder

    outputs, link = OUTPUTS[task].targets(draw), TASKS[task].link
    plan = input_plan(row, draw.features, draw.cardinalities, draw.weights)
    own = {name: value for name, value in arguments.items() if name != "rounds"}
    fit = Fit(functions, plan, task, OUTPUTS[task].loss, own, 1)
    num_epochs = 1 + bool(row.rounds)
    estimator, again = (_fitted(fit, draw.features, outputs, num_epochs) for _ in range(2))
    expected, others = (
        raw_outputs(functions, row.output, fitted, link, outputs[0].num_classes, draw.features)
        for fitted in (estimator, again)
    )
    if pack(estimator) != pack(again):
        raise TrainingError(
            f"{where}: two fits of the same rows with the same seed have different bytes, and answers "
            f"{np.abs(expected - others).max():.2g} apart, so no training could be told from another: set what draws "
            "at random or depends on threads, or take another estimator"
        )

    def graph_of(model: OutputModel) -> bytes:
        return functions.onnx(model.model, plan.width, len(model.classes))

    differences = [
        check_agreement(_answer(functions, model), graph_of(model), plan.matrix(draw.features), where)
        for model in estimator.outputs
        if model.model
    ]
    builder = GraphBuilder("joined/")
    output = join(builder, INPUT, estimator, graph_of, row.output, link, outputs[0].num_classes)
    builder.node("Identity", [output], "output", output=OUTPUT)
    graph = as_model(builder, draw.features.shape[1], expected.shape[1]).SerializeToString()
    return max(*differences, difference(expected, run_graph(graph, draw.features), where))


def _fitted(fit: Fit, features: Matrix, outputs: Sequence[OutputRows], num_epochs: int) -> StoredEstimator:
    estimator = grown(fit, features, outputs, None, ROUNDS, SEED)
    for epoch in range(1, num_epochs):
        estimator = grown(fit, features, outputs, estimator, ROUNDS, SEED + epoch)
    return estimator


def _answer(functions: Functions, model: OutputModel) -> Callable[[Matrix], NDArray[Any]]:
    def answer(x: Matrix) -> NDArray[Any]:
        answers = functions.predict(model.model, x).reshape(len(x), -1)
        return answers[:, -1:] if len(model.classes) == 2 else answers

    return answer


def probe_reference(row: EstimatorRow, reference: str, base: Path, task: Task, arguments: Mapping[str, Any]) -> float:
    """Return the largest difference between the estimator of a reference and its graph: see `probe`.

    Raises:
        UsageError: A library is missing, or the reference names nothing.
    """
    differences = [0.0]

    def compare(answer: Callable[[Matrix], NDArray[Any]], graph: bytes, x: Matrix, where: str) -> float:
        differences.append(check_agreement(answer, graph, x, where))
        return differences[-1]

    functions = functions_of(row, reference, base, compare)
    differences.append(probe(row, functions, task, arguments, f"model.net: {reference}"))
    return max(differences)


def probe_tasks(net: str, base: str, tasks: Sequence[Task], arguments: Mapping[str, Any]) -> float:
    """Return the largest difference between the estimator of a reference and its graph, for each of some tasks.

    Args:
        net: The reference of a class or a row.
        base: The folder from which relative files start.
        tasks: Empty: all that it learns.
        arguments: Of the spec.

    Raises:
        UsageError: It does not learn a task.
        TrainingError: Its graph differs, or equal fits have different bytes.
        UserCodeError: Its code raised.
    """
    row = row_of_source(net, Path(base))
    for task in tasks:
        check_task(row, net, task)
    learnt = [task for task in TASK_NAMES if task in (tasks or row.tasks)]
    return max(probe_reference(row, net, Path(base), task, arguments) for task in learnt)
