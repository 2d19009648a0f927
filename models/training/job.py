"""One training job as plain data: the only object that the loop sends to its ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from pydantic import Field

from models.errors import StoreError
from models.frozen_model import FrozenModel
from models.kinds.data_kind import Kind, PerDataKind
from models.nets.catalogue import CATALOGUE, ENSEMBLE, can_begin, row_of, unused
from models.project_spec.blocks import Model, Train
from models.training.costs.speeds import MeasuredSpeed
from models.training.costs.summary import Costs

WEIGHTS_FILE, TREES_FILE = CATALOGUE["mlp"].weights, CATALOGUE["trees"].weights
RESULT_FILE = "result.json"
JOB_FILE, PROGRESS_FILE, STOP_FILE, ERROR_FILE = "job.json", "progress.jsonl", "stop", "error.json"
"""The files by which a job on a cluster and the process that waits for it talk; see `models/training/node.py`."""
CHOICES_FILE = "choices.json"
"""What a job left open and the machine chose; see `models/training/choices.py`."""
CHECKPOINTS, CHECKPOINT_MANIFEST = "checkpoints", "manifest.json"
"""The folder of a job's checkpoints, and the file of each checkpoint with the hashes of the others, written last."""
FIRST_FIT, REFIT = "first-fit", "refit"
"""The subfolders of a refitted model's job: the fit on the training rows, and that on the validation rows too."""
LONGER = "longer training"
"""The key of a step's result with the sentence about nets whose score still rose."""
COMPANIONS = "other columns"
"""In the environment of a linear model of series: what it reaches on validation `with` the columns beside the target
and `without`, and those `columns` of which nothing is known beforehand."""

Stage = Literal["train", "pretrain", "teacher"]
FoldBy = Literal["random", "blocks", "groups"]
_EVERY_WAY: tuple[FoldBy, ...] = get_args(FoldBy)
_IN_BLOCKS: PerDataKind[tuple[FoldBy, ...]] = {
    "table": ("blocks",),
    "image": ("blocks",),
    "series": _EVERY_WAY,
    "text": _EVERY_WAY,
}
"""Under which `fold_by` folds are stretches: of examples that overlap, under each."""
_ROLLING: PerDataKind[tuple[FoldBy, ...]] = {
    "table": ("blocks",),
    "image": ("blocks",),
    "series": _EVERY_WAY,
    "text": (),
}
"""Under which `fold_by` folds follow one another in time."""


class InitialWeights(FrozenModel):
    """Initial weights: a safetensors file, its `weights_sha256`, and a text that names their origin.

    A `preparation.json` in the same folder lists the columns, categories and classes that they were trained on.
    """

    weights: Path
    sha256: str
    label: str
    model: Model | None = Field(
        None, description="The net that they are of, by its resolved name, and its arguments; None: of a file."
    )

    def suit(self, net: str, train: Train) -> bool:
        """Return whether a net, by its resolved name, can begin with them; of a file, each net tries it."""
        partial = train.start is not None and train.start.partial
        return can_begin(net, self.model.net if self.model else net, partial)

    def arguments(self, net: str) -> dict[str, Any]:
        """Return the arguments of their net, if it is the one of this name; else none."""
        return self.model.arguments if self.model is not None and self.model.net == net else {}


class RefitSettings(FrozenModel):
    """The settings that validation chose in the first fit; a refit has no validation and takes them as they are."""

    rounds: int | None = Field(None, description="Of trees.")
    l2: float | None = Field(None, description="Of a linear model of series, which chooses it itself.")
    is_scaled: bool | None = Field(None, description="Whether it divides each window by its spread.")
    has_companions: bool | None = Field(None, description="Whether it reads the columns beside the target.")


class Processes(NamedTuple):
    """The least and the most nodes of a job, and the ranks on each."""

    nodes: tuple[int, int]
    ranks: int


class TrainingJob(FrozenModel):
    """One net to train: for a trial, for a fold or for the final model.

    `folder` holds everything the job writes: `checkpoints/`, the best weights and `result.json`.
    """

    folder: Path
    prepared: Path = Field(description="Folder of preparation.json.")
    tensors: dict[str, Path] = Field(description="Safetensors of train and validation; unlabelled, if there are any.")
    project: Path = Field(description="Folder of the spec; references start here.")
    model: Model = Field(description="Its net is resolved, so it is never `auto`.")
    train: Train
    metric: str
    direction: Literal["maximize", "minimize"]
    threads: int = 1
    slot: int = Field(0, ge=0, description="Which of the jobs that run side by side: sets which GPUs its ranks take.")
    checkpoints: bool = True
    silence_s: float = Field(180.0, gt=0, description="How long the ranks may make no progress after the first step.")
    sample: float = 1.0
    fold: tuple[int, int] | None = Field(None, description="(index, k): validate on this fold of train + validation.")
    fold_by: FoldBy = Field(
        "random", description="blocks: stretches in the order of the rows; groups: none is divided."
    )
    chosen: tuple[str, ...] = Field((), description="Keys of `train` that were auto; see models/training/choices.py.")
    stage: Stage = Field("train", description="What of a method's stages this job is; see models/training/stages.py.")
    refit: RefitSettings | None = Field(None, description="Set: fit the training and the validation rows, with these.")
    start: InitialWeights | None = None
    pseudo: str = Field("", description="Hash of tensors['pseudo'], labels that a teacher gave.")
    checkpoint_share: float = Field(
        0.03, gt=0, le=1, description="Most of the time that checkpoints may take; 1: one whenever it is possible."
    )
    peak_flops_per_s: float | None = Field(None, gt=0, description="Of one rank, as measured; None: a GPU's by name.")
    processor: str = Field("cpu", description="Name of this machine's processor, under which speeds are kept.")
    speeds: tuple[MeasuredSpeed, ...] = Field((), description="What earlier jobs of the workspace measured.")

    def as_json(self) -> dict[str, Any]:
        """Return the job as JSON, for a function that `RankPool.call` calls."""
        plain: dict[str, Any] = json.loads(self.model_dump_json())
        return plain

    @classmethod
    def from_json(cls, job: dict[str, Any]) -> TrainingJob:
        """Return the job that `as_json` gave, or that was put together from a job's file."""
        return cls.model_validate_json(json.dumps(job), strict=False)

    @property
    def reference(self) -> str:
        """The metric as `resolve_metric` reads it."""
        return self.metric

    def rolls(self, kind: Kind) -> bool:
        """Return whether each fold of data of this kind is judged by a model of the rows before it."""
        return self.fold_by in _ROLLING[kind]

    def cuts_blocks(self, kind: Kind) -> bool:
        """Return whether each fold of data of this kind is a stretch of examples in their order."""
        return self.fold_by in _IN_BLOCKS[kind]

    @property
    def is_refitted(self) -> bool:
        """Whether the chosen model is fitted once more, on training and validation rows."""
        is_chosen = self.stage == "train" and self.fold is None and self.refit is None
        return is_chosen and self.train.refit and not unused(self.model.net, ["refit"])

    @property
    def processes(self) -> Processes:
        """The processes that train it."""
        on_ranks, alone = Processes(self.train.num_nodes, self.train.ranks), Processes((1, 1), 1)
        return on_ranks if row_of(self.model.net).by_descent else alone

    @property
    def validated(self) -> TrainingJob:
        """The job of the model that has not seen the validation rows: the first fit, or this job if it has no refit."""
        if not self.is_refitted:
            return self
        train = self.train.model_copy(update={"refit": False})
        return self.model_copy(update={"folder": self.folder / FIRST_FIT, "train": train})

    @property
    def whole(self) -> TrainingJob:
        """The job over all its examples, without a fold or a sample: what a finished model is judged on."""
        return self.model_copy(update={"fold": None, "sample": 1.0})

    def read_weights(self) -> bytes:
        """Return the file of the weights of a finished job.

        Raises:
            StoreError: It cannot be read.
        """
        path = self.folder / row_of(self.model.net).weights
        try:
            return path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror}): train again") from error

    @property
    def checkpoint_folder(self) -> Path:
        """The folder of the job's checkpoints, which its result replaces."""
        return self.folder / CHECKPOINTS

    @property
    def scratch_folder(self) -> Path:
        """The folder of what torch's agent and its ranks write meanwhile; whoever starts and ends them removes it."""
        return self.folder / ".agent.tmp"

    def allows_checkpoint(self, since_s: float, cost_s: float) -> bool:
        """Return whether a checkpoint stays within its share of the time.

        Args:
            since_s: Seconds since the last one, or since the start.
            cost_s: Seconds that one costs.
        """
        return self.checkpoints and (self.checkpoint_share == 1 or since_s * self.checkpoint_share >= cost_s)


def begun(job: TrainingJob, start: InitialWeights | None) -> TrainingJob:
    """Return the job with initial weights if its net can begin with them, and with those arguments that it leaves out.

    An ensemble keeps them for its members (`models/training/ensemble.py`).
    """
    model = job.model
    if start is None or not (model.net == ENSEMBLE or start.suit(model.net, job.train)):
        return job.model_copy(update={"start": None})
    model = model.model_copy(update={"arguments": {**start.arguments(model.net), **model.arguments}})
    return job.model_copy(update={"start": start, "model": model})


class EpochReport(FrozenModel):
    """The report of a job after each epoch.

    `values` holds train_loss, val_loss, val_<metric>, lr, and those values of `costs.MEASURED` that are known.
    Stages before the main training use other names there: pretrain_loss, teacher_val_loss.
    """

    epoch: int
    epochs: int
    values: dict[str, float]
    stage: str = "train"


class TrainingResult(FrozenModel):
    """The result of a finished job, stored in `result.json`; `pruned` is true if the caller stopped it early."""

    best_epoch: int
    value: float = Field(description="The goal's metric on validation, at the best epoch.")
    noise: float = Field(0.0, description="Standard error of `value`; 0 if only the goal decides.")
    log_loss: float | None = Field(None, description="On validation, of the best epoch; classes only.")
    epochs: list[dict[str, float]]
    weights: str = Field("", description="File name in the job's folder.")
    weights_sha256: str = ""
    num_parameters: int = 0
    seconds: float = 0.0
    world_size: int = 1
    threads: int = 1
    restarts: int = 0
    resumed_from: list[int] = Field(default_factory=list, description="Steps at which the job was taken up again.")
    pruned: bool = False
    costs: Costs | None = None
    before: dict[str, Any] = Field(default_factory=dict, description="What the stages before found: batch, labels.")
    speeds: list[MeasuredSpeed] = Field(default_factory=list, description="The shares of the peak that it reached.")
    members: dict[str, TrainingResult] = Field(default_factory=dict, description="Of an ensemble, by name.")
    environment: dict[str, Any] = Field(default_factory=dict, description="Everything else that decides the bits.")
