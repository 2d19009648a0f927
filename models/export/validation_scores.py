"""The scores of finished jobs on the same examples: on validation to compare families in a search, on test to read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from models.data.preparation import Preparation
from models.errors import LooplineError, StoreError, UsageError, one_line
from models.export.trained import HeldOutExamples, held_out_examples, out_of_fold, predictions_of
from models.judge.baseline import trivial_baseline
from models.kinds.task import TASKS, PerLink, refusal
from models.metrics.metrics import METRICS, Metric, metric_of
from models.metrics.outputs import Output
from models.nets.catalogue import FALLBACKS
from models.project_spec.references import call
from models.training.batches.examples import open_examples
from models.training.costs.summary import Costs, total
from models.training.ensemble import combined, selected, shrunk
from models.training.job import TrainingJob
from models.training.model_choice import Decided, as_array, decide
from models.training.search_course import BLOCKS, jackknife_error

MOST_TEST_EXAMPLES = 10_000
"""Test examples that a family is scored on for a reader, at most."""


def validation_scores(jobs: dict[str, dict[str, Any]], is_joined: bool = False) -> dict[str, Any]:
    """Return the metric of each job's model, also without each of `BLOCKS` blocks of examples, and of a constant.

    Blocks are of whole units of independence, consecutive in time, so that examples that are alike are left out
    together.
    Arguments and result are plain data for a child process.

    Args:
        jobs: Finished jobs on the same data, by family, as JSON.
        is_joined: Look for an ensemble of these models too.

    Returns:
        `scores` (by family: `value`, `without`) and `constant`, NaN where the metric is not defined; `weights` of an
        ensemble by family, empty if one model alone is as good or none was looked for, its scores as `joined`, None
        without one, and the name of the metric that decides on it as `joined_by`.
    """
    finished = {name: TrainingJob.from_json(job) for name, job in jobs.items()}
    first = next(iter(finished.values()))
    preparation = Preparation.load(first.prepared)
    held_out = {name: held_out_examples(job, preparation) for name, job in finished.items()}
    naive = sorted(finished.keys() & FALLBACKS)
    return _compared(first, preparation, held_out, is_joined, naive)


def bag_scores(jobs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Train the models of bags, and return what `validation_scores` returns: on all training and validation examples.

    Each example is judged by models that have not learnt from it. A model that is finished is read from its folder, so
    a killed comparison goes on with the model that was trained. A family that fails on a fold has no bag.

    Args:
        jobs: By family the jobs of its bag, one a fold, as JSON.

    Returns:
        The scores, `costs` of all models, and by family why it has no bag as `failed`; no scores if all of them failed.

    Raises:
        UsageError: The spec is wrong.
        StoreError: The disk is full or cannot be written.
    """
    from models.training.rank import run_job

    bags = {name: [TrainingJob.from_json(job) for job in bag] for name, bag in jobs.items()}
    costs: list[Costs | None] = []
    failed: dict[str, str] = {}
    for name, bag in bags.items():
        try:
            for job in bag:
                costs.append(run_job(job).costs)
        except (UsageError, StoreError):
            raise
        except LooplineError as error:
            failed[name] = one_line(error)
    document = {"costs": total(costs).model_dump(), "failed": failed}
    bags = {name: bag for name, bag in bags.items() if name not in failed}
    if not bags:
        return document
    first = next(iter(bags.values()))[0]
    preparation = Preparation.load(first.prepared)
    held_out = {name: out_of_fold(bag, preparation) for name, bag in bags.items()}
    return {**_compared(first, preparation, held_out, is_joined=True), **document}


def scores_on_test(jobs: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
    """Return what each job's model reaches on the test examples, decided as on validation, and its standard error.

    For a reader, after the verdict: whoever chooses by these figures has no test examples any more.

    Args:
        jobs: Finished jobs on the same data, by family, as JSON; their tensors include `test`.

    Returns:
        By family the goal's metric on at most `MOST_TEST_EXAMPLES` examples, evenly spread, and its standard error; NaN
        where it is undefined.
    """
    scores = {}
    for name, document in jobs.items():
        job = TrainingJob.from_json(document)
        preparation = Preparation.load(job.prepared)
        seen = held_out_examples(job, preparation)
        decided = _Side(job, preparation, seen).decided(predictions_of(seen.outputs, preparation))
        on_test = job.model_copy(update={"tensors": {**job.tensors, "validation": job.tensors["test"]}})
        examples = held_out_examples(on_test, preparation, MOST_TEST_EXAMPLES)
        side = _Side(on_test, preparation, examples)
        predicted = decided.apply(side.predictions(examples.outputs))
        value, *without = side.evaluated(decided.metric, predicted, side.blocks())
        scores[name] = [value, jackknife_error(without)]
    return scores


def validation_value(job: dict[str, Any]) -> float:
    """Return the metric of a job's model on validation, of first fits where it was refitted; NaN if not defined.

    Of bags it is that on all training and validation examples, each judged by the models of the other folds.
    """
    finished = TrainingJob.from_json(job)
    preparation = Preparation.load(finished.prepared)
    examples = held_out_examples(finished, preparation)
    side = _Side(finished, preparation, examples)
    return side.values(side.predictions(examples.outputs))[0]


def _compared(
    job: TrainingJob,
    preparation: Preparation,
    held_out: dict[str, HeldOutExamples],
    is_joined: bool,
    naive: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the document of `validation_scores` from the examples that judge each model, the same for all."""
    examples = next(iter(held_out.values()))
    side = _Side(job, preparation, examples)
    blocks = side.blocks()
    outputs = {name: judged.outputs for name, judged in held_out.items()}
    scores = {name: side.scores(output, blocks) for name, output in outputs.items()}
    document = {"scores": scores, "constant": side.constant(), "weights": {}, "joined": None}
    document["joined_by"] = side.joined_by.name
    return {**document, **_joined(outputs, side, blocks, naive)} if is_joined else document


def _log_loss(goal: Metric, outputs: Sequence[Output]) -> Metric:
    del goal
    return METRICS["log_loss"].of(outputs)


def _goal(goal: Metric, outputs: Sequence[Output]) -> Metric:
    del outputs
    return goal


JOINED_BY: PerLink[Callable[[Metric, Sequence[Output]], Metric]] = {
    "logistic": _log_loss,
    "softmax": _log_loss,
    "identity": _goal,
    "text": _goal,
}
"""Which metric decides on an ensemble."""


class _Side:
    """The examples that judge a job's models, and what judges predictions for them."""

    def __init__(self, job: TrainingJob, preparation: Preparation, examples: HeldOutExamples) -> None:
        self._job, self.preparation = job, preparation
        self.metric = metric_of(job, preparation, job.project)
        self.target, self._weight, self._units = examples.target, examples.weight, examples.units
        self.positions = np.arange(len(examples.target))
        self.joined_by = JOINED_BY[TASKS[preparation.task].link](self.metric, preparation.outputs)

    def blocks(self) -> list[np.ndarray]:
        """Return the positions of `BLOCKS` blocks of whole units of independence, int64 (examples,) each."""
        groups = self.metric.units(self.target)
        apart = self.positions if self._units is None else self._units.of_rows
        units = groups if groups is not None else apart
        left_out = np.array_split(np.unique(units), min(BLOCKS, len(np.unique(units))))
        return [np.flatnonzero(np.isin(units, block)) for block in left_out]

    def predictions(self, outputs: np.ndarray) -> np.ndarray:
        """Return the input of metrics for raw outputs (example, output)."""
        return predictions_of(outputs, self.preparation)

    def values(self, predicted: np.ndarray, blocks: Sequence[np.ndarray] = ()) -> list[float]:
        """Return the goal's metric, as trials are scored: of all examples, then without each block; NaN if undefined.

        Args:
            predicted: For all examples.
            blocks: Positions, int64 (examples,).
        """
        decided = self.decided(predicted)
        return self.evaluated(decided.metric, decided.apply(predicted), blocks)

    def decided(self, predicted: np.ndarray) -> Decided:
        """Return how a model with these predictions will decide."""
        return decide(self.metric, self.preparation.task, self.target, predicted, self._weight)

    def scores(self, outputs: np.ndarray, blocks: Sequence[np.ndarray]) -> dict[str, Any]:
        """Return the metric for raw outputs (example, output): `value`, and `without` each block."""
        value, *without = self.values(self.predictions(outputs), blocks)
        return {"value": value, "without": without}

    def constant(self) -> float:
        """Return the metric of a constant prediction."""
        preparation = self.preparation
        train = open_examples(self._job.whole, preparation)[0]
        num_classes = len(preparation.target.names)
        baseline = trivial_baseline(
            preparation.task,
            train.values(),
            self.target,
            num_classes,
            self.metric.name,
            preparation.outputs,
            as_array(train.weights()),
        )
        return self.values(baseline.prediction)[0]

    def loss(self, outputs: np.ndarray) -> float:
        """Return what an ensemble is to make small: the log loss of classes and labels, else the goal's metric."""
        if self.joined_by is self.metric:
            return -self.metric.sign * self.values(self.predictions(outputs))[0]
        return self.evaluated(self.joined_by, self.predictions(outputs))[0]

    def evaluated(self, metric: Metric, predicted: np.ndarray, blocks: Sequence[np.ndarray] = ()) -> list[float]:
        """Return a metric of predictions as it takes them: of all examples, then without each block."""
        weight = np.ones(len(self.target)) if self._weight is None or not metric.takes_weights else self._weight
        weights = [weight, *(np.where(np.isin(self.positions, block), 0.0, weight) for block in blocks)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                evaluate = metric.evaluator(self.target, predicted)
                return [float(call(evaluate, metric.name, row_weights)) for row_weights in weights]
        except LooplineError:
            return [float("nan")] * len(weights)


def _joined(
    outputs: dict[str, np.ndarray], side: _Side, blocks: Sequence[np.ndarray], naive: Sequence[str]
) -> dict[str, Any]:
    if refusal(side.preparation.task, "ensemble") or len(outputs) < 2:
        return {}
    weights = selected(outputs, side.preparation.task, side.loss)
    for fallback in naive:
        weights = shrunk(weights, fallback, len(side.target))
    if len(weights) < 2:
        return {}
    mean = combined([outputs[name] for name in weights], list(weights.values()), side.preparation.task)
    return {"weights": weights, "joined": side.scores(mean, blocks)}
