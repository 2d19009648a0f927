"""Gradient-boosted trees (LightGBM) behind the interface of a net: epochs, metrics, early stopping, exact resume.

An epoch is an equal part of `rounds`, at least one round. LightGBM resumes from its model text with the same bits,
unless it samples rows or columns: the state of its generators cannot be saved. With sampling, the rounds are split into
fixed segments. Each segment starts from the text of the one before with its own seed, also without a kill, so that a
resumed job still equals an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from models.data.preparation import Preparation
from models.distributed.order import seed_of, share
from models.distributed.world import World
from models.errors import TrainingError, UsageError
from models.files import write_text
from models.inputs.records import owners
from models.inputs.types import collected_later
from models.kinds.data_kind import PerDataKind
from models.kinds.task import TASKS
from models.metrics.metrics import Metric, metric_of
from models.nets.catalogue import row_of
from models.project_spec.blocks import Model, Train
from models.project_spec.references import call
from models.training.batches.examples import open_examples
from models.training.batches.group_order import group_order
from models.training.boosters import (
    TREE_OBJECTIVES,
    Boosters,
    Gradients,
    Parameters,
    gamma_gradients,
    gradients_of_loss,
    num_leaves,
    objectives,
    tree_loss,
)
from models.training.checkpoints.checkpoint import CheckpointDraft, write_alone
from models.training.checkpoints.finished import identity, write_result
from models.training.checkpoints.state import Progress
from models.training.choices import cpu_despite_gpu
from models.training.costs.counters import peak_memory_mb, reset_peak
from models.training.costs.summary import of_epochs
from models.training.job import TREES_FILE, EpochReport, TrainingJob, TrainingResult
from models.training.loop import Report, is_over
from models.training.model_choice import ValidationScore, as_array, record, score
from models.training.optimisation.losses import (
    Loss,
    class_weights,
    make_loss,
    predictions,
    relative_weights,
)
from models.training.session import last_checkpoint
from models.training.tree_inputs import TreeInputs, tree_inputs
from models.training.tree_parameters import (
    MONOTONE,
    check_parameter,
    is_sampled,
    no_monotone,
    samples_rows,
    settings,
    with_positions,
    without_columns,
)

CPU = torch.device("cpu")
Labels = Iterator[tuple[NDArray[Any], NDArray[Any] | None]]
"""The target (row,) and the weights of the rows of each booster."""
RENEWED = ("l1", "relative_l1", "pinball")
"""Losses whose leaves LightGBM sets to a quantile after a split, so that it cannot keep them in order."""
_PLAIN_LOSS = {"class_weights": "none", "label_smoothing": 0.0}
"""The validation loss of trees is the plain one."""
# Each segment costs one extra prediction over the training rows.
_SEGMENTS = 4
_ROWS_A_THREAD = 10_000
"""Below, threads wait for each other longer than they work (docs/decisions/0005). Source: LightGBM on num_threads."""
STALE_ROUNDS = 50
"""Rounds without a better model after which boosting stops. Source: LightGBM's examples of early stopping."""
# Most evaluations of the validation metric in a job, which find the best number of rounds.
_LOOKS = 100


@dataclass
class _Boosting:
    """The objects that do not change during boosting."""

    job: TrainingJob
    preparation: Preparation
    metric: Metric
    arguments: dict[str, Any]
    train_sets: list[Any]
    num_train: int
    inputs: TreeInputs
    targets: torch.Tensor
    values: NDArray[Any]
    loss: Loss
    weights: torch.Tensor | None
    total_weight: float
    train_ranks: NDArray[Any] | None = None
    """Of a ranking: grade and group of the training rows, group by group (row, 2)."""

    def validation_loss(self, output: NDArray[np.float64]) -> float:
        """Return the mean loss of the validation rows; of a ranking 1 - NDCG."""
        return TREE_OBJECTIVES[self.preparation.task].validation_loss(output, self.values, self._mean_loss)

    def _mean_loss(self, output: NDArray[np.float64]) -> float:
        return float(self.loss(torch.from_numpy(output), self.targets, self.weights)) / self.total_weight

    @property
    def is_validated(self) -> bool:
        """Whether the validation rows choose the number of rounds; a refit learns from them."""
        return self.job.refit is None

    @property
    def loss_name(self) -> str:
        """The loss that the trees are grown by."""
        return tree_loss(self.preparation, self.metric.name, self.arguments["objective"])

    @property
    def gradients(self) -> Gradients | None:
        """The objective itself, where LightGBM has none of that name."""
        if self.job.train.loss is not None:
            return partial(gradients_of_loss, loss=self.loss, kind=self.targets.dtype)
        if self.loss_name != "gamma":
            return None
        return partial(gamma_gradients, scale=self.preparation.target.scale)

    @property
    def rounds(self) -> int:
        return int(self.arguments["rounds"])

    @property
    def epochs(self) -> int:
        return min(self.job.train.epochs, self.rounds)

    @property
    def threads(self) -> int:
        """The job's threads, but one for each `_ROWS_A_THREAD` rows; the trees are the same."""
        return max(1, min(self.job.threads, self.num_train // _ROWS_A_THREAD))

    @property
    def segment(self) -> int:
        """The number of rounds after which boosting restarts from its text."""
        return -(-self.rounds // _SEGMENTS) if is_sampled(self.arguments) else self.rounds

    def parameters(self, start: int) -> list[Parameters]:
        """LightGBM's parameters of each booster for the segment that holds round `start`."""
        objective_parameters = objectives(self.preparation, self.metric.name, self.arguments["objective"])
        return [{**self._common(start), **objective} for objective in objective_parameters]

    def _common(self, start: int) -> Parameters:
        words = {key: value for key, value in self.arguments.items() if key != "rounds"}
        sampled = {"bagging_freq": 1} if samples_rows(words) else {}
        return {
            **words,
            **sampled,
            "num_threads": self.threads,
            "seed": seed_of("trees", self.job.train.seed, start // self.segment) % 2**31,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


def train_trees(job: TrainingJob, report: Report, restarts: int = 0) -> TrainingResult:
    """Grow trees until the last round, early stopping or a stop by `report`. Runs in one process.

    Raises:
        UsageError: An argument is unknown, or the data is no table and no series.
        TrainingError: The folder holds the checkpoints of another job, or LightGBM rejected the data.
        StoreError: The disk is full or cannot be written.
    """
    import lightgbm

    reset_peak(CPU)
    boosting = _open(job)
    progress, resumed = _resume(job)
    booster, pruned, saver = resumed, False, _Saver(job)
    try:
        for booster in _epochs(boosting, progress, resumed):
            pruned = not report(EpochReport(epoch=progress.epoch, epochs=boosting.epochs, values=progress.history[-1]))
            if pruned or is_over(progress, boosting.epochs, job.train.patience) or _is_stale(boosting, progress):
                break
            if boosting.segment == boosting.rounds or progress.step % boosting.segment == 0:
                saver.save(progress, booster)
    except lightgbm.basic.LightGBMError as error:
        raise TrainingError(f"trees: LightGBM refuses ({error}): look at model.arguments and the data") from error
    assert booster is not None
    return _finish(boosting, progress, booster, pruned, restarts)


def _open(job: TrainingJob) -> _Boosting:
    import lightgbm

    preparation = Preparation.load(job.prepared)
    if job.train.loss is not None and preparation.num_outputs > 1:
        raise UsageError(
            "train.loss: trees take an own loss of two classes or of one number, got several outputs: take a net"
        )
    metric = metric_of(job, preparation, job.project)
    train, validation = open_examples(job, preparation)
    targets, order = train.targets(), None
    if TASKS[preparation.task].is_grouped:
        order = group_order(train.values(), str(preparation.target.group))
        targets = targets[order.positions]
    numeric, categorical = preparation.num_numeric, len(preparation.cardinalities)
    boosting = _Boosting(
        job=job,
        preparation=preparation,
        metric=metric,
        arguments=_arguments(job.model, job.train, preparation, metric),
        train_sets=[],
        num_train=len(train),
        inputs=tree_inputs(validation, preparation),
        targets=validation.targets(),
        values=validation.values(),
        weights=validation.weights(),
        total_weight=validation.total_weight,
        loss=make_loss(preparation, job.train.model_copy(update=_PLAIN_LOSS), metric.name, targets, job.project),
        train_ranks=None if order is None else train.values()[order.positions],
    )
    inputs = tree_inputs(train, preparation, order and order.positions)
    for label, weight in _LABELS[preparation.kind](boosting, targets, train.weights(), inputs):
        train_set = lightgbm.Dataset(
            inputs.features,
            label,
            weight=weight,
            group=order and order.sizes,
            reference=boosting.train_sets[0] if boosting.train_sets else None,
            categorical_feature=list(range(numeric, numeric + categorical)),
            params=boosting.parameters(0)[0],
            free_raw_data=False,
        )
        boosting.train_sets.append(train_set)
    return boosting


def _labels_of_windows(
    boosting: _Boosting, targets: torch.Tensor, row_weights: torch.Tensor | None, inputs: TreeInputs
) -> Labels:
    of_rows = _row_weights(boosting, targets, row_weights)
    # An error of the correction counts in the unit of the target.
    power = 2 if boosting.loss_name == "mse" else 1
    unit = inputs.slope[:, 0] ** power
    weights = unit / unit.mean() * (1.0 if of_rows is None else of_rows)
    for label in inputs.label(targets.numpy()).T:
        yield np.ascontiguousarray(label), weights


def _labels_of_rows(
    boosting: _Boosting, targets: torch.Tensor, row_weights: torch.Tensor | None, inputs: TreeInputs
) -> Labels:
    del inputs
    if targets.ndim == 1:
        yield targets.numpy(), _row_weights(boosting, targets, row_weights)
        return
    balanced = boosting.job.train.class_weights == "balanced"
    preparation = boosting.preparation
    of_labels = class_weights(preparation.target, preparation.task, targets, row_weights) if balanced else None
    for index in range(preparation.num_outputs):
        label, weights = targets[:, index].contiguous(), row_weights
        if of_labels is not None:
            weights = of_labels[label.long(), index] * (1.0 if row_weights is None else row_weights)
        yield label.numpy(), None if weights is None else weights.numpy()


_LABELS: PerDataKind[Callable[[_Boosting, torch.Tensor, torch.Tensor | None, TreeInputs], Labels]] = {
    "table": _labels_of_rows,
    "image": _labels_of_rows,
    "series": _labels_of_windows,
    "text": _labels_of_rows,
}


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
    return {**settings(), **with_positions(arguments, columns, numbers)}


def _epochs(boosting: _Boosting, progress: Progress, booster: Boosters | None) -> Iterator[Boosters]:
    """Grow the trees of each remaining epoch; `progress` is up to date whenever a booster is yielded."""
    rounds, epochs = boosting.rounds, boosting.epochs
    raw = np.zeros((len(boosting.inputs.features), boosting.preparation.num_outputs))
    if booster is not None and boosting.is_validated:
        raw += _raw(boosting, booster, 0, progress.step)
    fresh, measured = True, dict[str, float]()
    while progress.epoch < epochs:
        start, first = time.perf_counter(), progress.step
        _, stop = share(0, rounds, progress.epoch, epochs)
        for low, high in _looks(first, stop, rounds, boosting.segment):
            for index in range(low, high):
                booster = _round(boosting, booster, index, fresh or index % boosting.segment == 0)
                fresh = False
            assert booster is not None
            if boosting.is_validated:
                raw += _raw(boosting, booster, low, high)
                measured = _look(boosting, progress, boosting.inputs.output(raw), high).values(boosting.metric.name)
        progress.step, progress.epoch = stop, progress.epoch + 1
        if boosting.is_validated:
            measured = {"val_loss": boosting.validation_loss(boosting.inputs.output(raw)), **measured}
        else:
            progress.best_epoch, progress.best_round = progress.epoch, progress.step
        assert booster is not None
        train_loss = booster.train_loss(boosting.train_ranks)
        seconds = max(time.perf_counter() - start, 1e-9)
        progress.seconds += seconds
        progress.history.append(
            {
                "train_loss": train_loss,
                **measured,
                "lr": float(boosting.arguments["learning_rate"]),
                "samples_per_s": (stop - first) * boosting.num_train / seconds,
                "device_s": seconds,
                "peak_memory_mb": peak_memory_mb(CPU),
                "rounds": float(progress.step),
            }
        )
        yield booster


def _round(boosting: _Boosting, booster: Boosters | None, index: int, is_fresh: bool) -> Boosters:
    """Grow one more round; `is_fresh` makes new boosters from the text of those before."""
    if not is_fresh and booster is not None:
        booster.update(boosting.gradients)
        return booster
    before = Boosters.of_text(booster.to_text()) if booster is not None else None
    return Boosters.first_round(boosting.parameters(index), boosting.train_sets, before, boosting.gradients)


def _looks(first: int, stop: int, rounds: int, segment: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of rounds between two evaluations of the validation metric."""
    stride = max(1, rounds // _LOOKS)
    while first < stop:
        high = min(first + stride, stop, first - first % segment + segment)
        yield first, high
        first = high


def _look(boosting: _Boosting, progress: Progress, output: NDArray[np.float64], rounds: int) -> ValidationScore:
    """Return the score on the validation rows after `rounds` rounds, and record it."""
    predicted, metric = predictions(torch.from_numpy(output), boosting.preparation), boosting.metric
    latest: ValidationScore = call(
        score, metric.name, metric, boosting.preparation.task, boosting.values, predicted, as_array(boosting.weights)
    )
    record(progress, latest, boosting.job.direction, progress.epoch + 1, rounds)
    return latest


def _is_stale(boosting: _Boosting, progress: Progress) -> bool:
    """Return whether more rounds seem useless: early stopping, where the spec sets no `train.patience`."""
    if not boosting.is_validated or boosting.job.train.patience is not None:
        return False
    return progress.step - progress.improved_round >= STALE_ROUNDS


def _row_weights(boosting: _Boosting, targets: torch.Tensor, row_weights: torch.Tensor | None) -> NDArray[Any] | None:
    """Return the weights of the training rows: their own, balanced classes, and the shares of a relative error."""
    preparation, weights = boosting.preparation, row_weights
    if boosting.loss_name == "relative_l1":
        relative = relative_weights(targets, preparation.target).double()
        relative = relative / relative.mean()
        weights = relative if row_weights is None else relative * row_weights
    balanced = boosting.job.train.class_weights == "balanced"
    of_classes = class_weights(preparation.target, preparation.task, targets, row_weights) if balanced else None
    if of_classes is not None:
        weights = of_classes[targets.long()] * (1.0 if row_weights is None else row_weights)
    return None if weights is None else weights.numpy()


def _raw(boosting: _Boosting, booster: Boosters, low: int, high: int) -> NDArray[np.float64]:
    """Return what the trees of rounds `low` to `high` add to the outputs of the validation rows."""
    return booster.raw(boosting.inputs.features, low, high, boosting.threads)


class _Saver:
    """Writes checkpoints as often as the job's share of the time allows."""

    def __init__(self, job: TrainingJob) -> None:
        self._job = job
        self._since, self._cost_s = time.perf_counter(), 0.0

    def save(self, progress: Progress, booster: Boosters) -> None:
        """Write a checkpoint if one is due."""
        job, start = self._job, time.perf_counter()
        if not job.allows_checkpoint(start - self._since, self._cost_s):
            return
        meta = {"progress": asdict(progress), "job": identity(job), "text": booster.to_text()}
        write_alone(CheckpointDraft(job.checkpoint_folder, progress.step, meta), {})
        self._since = time.perf_counter()
        self._cost_s = self._since - start


def _resume(job: TrainingJob) -> tuple[Progress, Boosters | None]:
    last = last_checkpoint(job, World())
    if last is None:
        return Progress(), None
    progress = Progress(**last[1]["progress"])
    progress.resumed_from.append(progress.step)
    return progress, Boosters.of_text(str(last[1]["text"]))


def _finish(boosting: _Boosting, progress: Progress, booster: Boosters, pruned: bool, restarts: int) -> TrainingResult:
    import lightgbm

    job = boosting.job
    best = booster.to_text(progress.best_round)
    write_text(job.folder / TREES_FILE, best)
    return write_result(
        job,
        progress,
        weights=TREES_FILE,
        weights_sha256=hashlib.sha256(best.encode()).hexdigest(),
        num_parameters=num_leaves(best),
        restarts=restarts,
        pruned=pruned,
        costs=of_epochs(progress.history, "cpu"),
        environment={
            "lightgbm": lightgbm.__version__,
            "chosen": cpu_despite_gpu(row_of(job.model.net).no_gpu),
            "parameters": boosting.parameters(0)[0],
            "rounds": progress.best_round,
            "train_examples": boosting.num_train,
            "validation_examples": len(boosting.targets),
        },
    )
