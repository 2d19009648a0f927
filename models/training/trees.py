"""Gradient-boosted trees (LightGBM): a learner of `rounds.py` that resumes with the same bits.

LightGBM resumes from its model text with the same bits, unless it samples rows or columns: the state of its generators
cannot be saved. With sampling, the rounds are split into fixed segments. Each segment starts from the text of the one
before with its own seed, also without a kill, so that a resumed job still equals an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from models.data.preparation import Preparation
from models.distributed.order import seed_of
from models.errors import TrainingError, UsageError
from models.inputs.record import DerivedInput
from models.inputs.records import owners
from models.inputs.types import collected_later
from models.kinds.task import TASKS
from models.metrics.metrics import Metric
from models.project_spec.blocks import Model, Train
from models.training.batches.examples import open_examples
from models.training.batches.group_order import group_order
from models.training.boosters import (
    Boosters,
    Gradients,
    Parameters,
    gamma_gradients,
    gradients_of_loss,
    num_leaves,
    objectives,
    tree_loss,
)
from models.training.by_rounds.output_rows import LabelSettings, labels
from models.training.by_rounds.rounds import PLAIN_LOSS, LearnerInputs, fit_by_rounds
from models.training.job import TrainingJob, TrainingResult
from models.training.loop import Report
from models.training.optimisation.losses import make_loss
from models.training.tree_inputs import tree_inputs
from models.training.tree_parameters import (
    MONOTONE,
    check_parameter,
    is_sampled,
    no_monotone,
    samples_rows,
    settings,
    with_derived,
    with_positions,
    without_columns,
)

RENEWED = ("l1", "relative_l1", "pinball")
"""Losses whose leaves LightGBM sets to a quantile after a split, so that it cannot keep them in order."""
# Each segment costs one extra prediction over the training rows.
_SEGMENTS = 4
# Most evaluations of the validation metric in a job, which find the best number of rounds.
_LOOKS = 100


def train_trees(job: TrainingJob, report: Report, restarts: int = 0) -> TrainingResult:
    """Grow trees until the last round, early stopping or a stop by `report`. Runs in one process.

    Raises:
        UsageError: An argument is unknown, or the data is no table and no series.
        TrainingError: The folder holds the checkpoints of another job, or LightGBM rejected the data.
        StoreError: The disk is full or cannot be written.
    """
    return fit_by_rounds(job, report, restarts, TreesLearner)


class TreesLearner:
    """The boosters of a job; see `rounds.Learner`.

    Args:
        inputs: What they learn from.

    Raises:
        UsageError: An argument is unknown, or the loss does not go with several outputs.
    """

    can_cut = True

    def __init__(self, inputs: LearnerInputs) -> None:
        self._job, self._preparation, self._metric = inputs.job, inputs.preparation, inputs.metric
        if self._job.train.loss is not None and self._preparation.num_outputs > 1:
            raise UsageError(
                "train.loss: trees take an own loss of two classes or of one number, got several outputs: take a net"
            )
        self._arguments = _arguments(self._job.model, self._job.train, self._preparation, self._metric)
        self._loss = tree_loss(self._preparation, self._metric.name, self._arguments["objective"])
        self._threads = inputs.threads
        self._inputs = tree_inputs(inputs.validation, self._preparation)
        self._raw = np.zeros((len(self._inputs.features), self._preparation.num_outputs))
        self._boosters: Boosters | None = None
        self._is_fresh, self._num_rounds, self._num_evaluated = True, 0, 0
        self._open_train_sets(inputs)

    def _open_train_sets(self, inputs: LearnerInputs) -> None:
        import lightgbm

        preparation, train = self._preparation, inputs.train
        targets, order = train.targets(), None
        if TASKS[preparation.task].is_grouped:
            order = group_order(train.values(), str(preparation.target.group))
            targets = targets[order.positions]
        self._train_ranks = None if order is None else train.values()[order.positions]
        self._gradients = self._own_gradients(targets)
        numeric, categorical = preparation.num_numeric, len(preparation.cardinalities)
        features = tree_inputs(train, preparation, order and order.positions)
        weighing = LabelSettings(preparation, self._loss, self._job.train.class_weights == "balanced")
        self._train_sets: list[Any] = []
        for label, weight in labels(weighing, targets, train.weights(), features):
            train_set = lightgbm.Dataset(
                features.features,
                label,
                weight=weight,
                group=order and order.sizes,
                reference=self._train_sets[0] if self._train_sets else None,
                categorical_feature=list(range(numeric, numeric + categorical)),
                params=self.parameters(0)[0],
                free_raw_data=False,
            )
            self._train_sets.append(train_set)

    def _own_gradients(self, targets: torch.Tensor) -> Gradients | None:
        """Return the objective itself, where LightGBM has none of that name."""
        train = self._job.train
        if train.loss is not None:
            plain = train.model_copy(update=PLAIN_LOSS)
            loss = make_loss(self._preparation, plain, self._metric.name, targets, self._job.project)
            return partial(gradients_of_loss, loss=loss, kind=targets.dtype)
        if self._loss != "gamma":
            return None
        return partial(gamma_gradients, scale=self._preparation.target.scale)

    @property
    def rounds(self) -> int:
        """All rounds."""
        return int(self._arguments["rounds"])

    @property
    def _segment(self) -> int:
        """The number of rounds after which boosting restarts from its text."""
        return -(-self.rounds // _SEGMENTS) if is_sampled(self._arguments) else self.rounds

    def parameters(self, start: int) -> list[Parameters]:
        """Return LightGBM's parameters of each booster for the segment that holds round `start`."""
        objective_parameters = objectives(self._preparation, self._metric.name, self._arguments["objective"])
        return [{**self._common(start), **objective} for objective in objective_parameters]

    def _common(self, start: int) -> Parameters:
        words = {key: value for key, value in self._arguments.items() if key != "rounds"}
        sampled = {"bagging_freq": 1} if samples_rows(words) else {}
        return {
            **words,
            **sampled,
            "num_threads": self._threads,
            "seed": seed_of("trees", self._job.train.seed, start // self._segment) % 2**31,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }

    def resume(self, state: bytes, rounds: int) -> None:
        """Go on from a text after so many rounds."""
        self._boosters, self._num_rounds = Boosters.of_text(state.decode()), rounds
        if self._job.refit is None:
            self.outputs()

    def can_resume(self, rounds: int) -> bool:
        """Return whether a segment ends after so many rounds, or there is no sampling."""
        return self._segment == self.rounds or rounds % self._segment == 0

    def looks(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of rounds between two evaluations of the validation metric."""
        stride = max(1, self.rounds // _LOOKS)
        while first < stop:
            high = min(first + stride, stop, first - first % self._segment + self._segment)
            yield first, high
            first = high

    def grow(self, first: int, stop: int) -> None:
        """Grow rounds `first` to `stop`."""
        import lightgbm

        try:
            for index in range(first, stop):
                self._grow_round(index)
        except lightgbm.basic.LightGBMError as error:
            raise TrainingError(f"trees: LightGBM refuses ({error}): look at model.arguments and the data") from error
        self._num_rounds = stop

    def _grow_round(self, index: int) -> None:
        """Grow one more round; a segment makes new boosters from the text of those before."""
        if self._boosters is not None and not self._is_fresh and index % self._segment:
            self._boosters.update(self._gradients)
            return
        before = Boosters.of_text(self._boosters.to_text()) if self._boosters is not None else None
        self._boosters = Boosters.first_round(self.parameters(index), self._train_sets, before, self._gradients)
        self._is_fresh = False

    @property
    def _grown(self) -> Boosters:
        assert self._boosters is not None
        return self._boosters

    def outputs(self) -> NDArray[np.float64]:
        """Return the outputs for the validation rows, from the trees since the last call and those before."""
        low, high = self._num_evaluated, self._num_rounds
        if low < high:
            self._raw += self._grown.raw(self._inputs.features, low, high, self._threads)
            self._num_evaluated = high
        return self._inputs.output(self._raw)

    def train_loss(self) -> float:
        """Return the mean training loss of the boosters."""
        return self._grown.train_loss(self._train_ranks)

    def state(self, rounds: int | None = None) -> bytes:
        """Return the text of the boosters, of their first `rounds` rounds or of all."""
        return self._grown.to_text(rounds).encode()

    def values(self) -> dict[str, float]:
        """Return the learning rate."""
        return {"lr": float(self._arguments["learning_rate"])}

    def num_parameters(self, state: bytes) -> int:
        """Return the number of leaves of a text."""
        return num_leaves(state.decode())

    def environment(self) -> dict[str, Any]:
        """Return LightGBM's version and parameters."""
        import lightgbm

        return {"lightgbm": lightgbm.__version__, "parameters": self.parameters(0)[0]}


def _arguments(model: Model, train: Train, preparation: Preparation, metric: Metric) -> dict[str, Any]:
    """Return all arguments: those of `TreeArguments`, and the further parameters of LightGBM that the spec sets."""
    setting_names = list(settings())
    further = {name: value for name, value in model.arguments.items() if name not in setting_names}
    for name, value in further.items():
        check_parameter(name, value, setting_names)
    objective = str(model.arguments.get("objective", "auto"))
    loss = tree_loss(preparation, metric.name, objective)
    if objective != "auto" and train.loss is not None:
        raise UsageError(f"model.arguments.objective: got {objective} beside train.loss: drop one of them")
    if further.get(MONOTONE) and loss in RENEWED:
        raise no_monotone(metric.name)
    numbers = [part.name for part in preparation.inputs if part.axis is None]
    columns = owners(preparation.inputs)
    columns += [part.name for part in preparation.inputs for _ in part.cardinalities]
    arguments = without_columns(model.arguments, collected_later(preparation.left_out))
    arguments = with_derived(arguments, preparation.of(DerivedInput))
    return {**settings(), **with_positions(arguments, columns, numbers)}


def trees_outputs(job: TrainingJob, preparation: Preparation, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the raw outputs of trees for validation examples, float64 (example, output)."""
    inputs = tree_inputs(open_examples(job, preparation)[1], preparation, torch.from_numpy(positions))
    raw = Boosters.of_text(job.read_weights().decode()).raw(inputs.features, 0, -1, threads=1)
    return inputs.output(raw)
