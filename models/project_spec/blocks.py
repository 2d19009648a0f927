"""The blocks of `project.yaml` as strict pydantic models.

Each block is one class. With the defaults, a spec with only a data source and a target trains a sensible model.
`models/project_spec/reader.py` reads the file, with line numbers and the command line's overrides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from models.errors import UsageError
from models.kinds.data_kind import PerDataKind
from models.project_spec.block import Batch, Nodes, OwnFunction, Reference, Seed, SpecBlock, Whole
from models.project_spec.data import ORDERED
from models.project_spec.data import Data as Data
from models.project_spec.data import Features as Features
from models.project_spec.data import Kind as Kind
from models.project_spec.goal import Goal
from models.project_spec.image_and_text import Image as Image
from models.project_spec.image_and_text import Text as Text
from models.project_spec.judge import Judge as Judge
from models.project_spec.judge import TimeUnit as TimeUnit
from models.project_spec.methods import Augment, Optimiser, Pretrain, PseudoLabels, Recent, Schedule, Start
from models.project_spec.monitor_and_retrain import Monitor, Retrain
from models.project_spec.parallel_dims import ParallelDims
from models.project_spec.search import Dimension, Search
from models.project_spec.serve import Serve
from models.project_spec.split import Split as Split
from models.project_spec.window import Window as Window

_NCCL_NAME, _NCCL_VALUE = r"^NCCL_[A-Z0-9_]+$", r"^[^\x00]*$"
NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,62}$"

Precision = Literal["auto", "fp32", "fp32-exact", "bf16", "fp16"]
Parallel = Literal["ddp", "fsdp", "hsdp", "tp", "pp", "ddp+tp", "fsdp+tp", "ddp+pp", "fsdp+pp"]


class Model(SpecBlock):
    """The architecture: tabm, mlp, cnn, gru, lstm, transformer, decoder, trees, linear, descriptors, or a reference."""

    net: Reference = Field(
        "auto",
        description="auto: the search chooses (tables, series, images), decoder (text). A reference, in quotes, "
        "names an estimator (`sklearn.ensemble:ExtraTreesClassifier`), a row of your own (`./boosted.py:FAMILY`) or "
        "your own torch net (`./net.py:Net`).",
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict,
        description="Arguments of the net, of LightGBM or of the estimator; unknown ones are refused.",
    )


_UNDIVIDED: PerDataKind[str] = {
    "table": "",
    "image": "",
    "series": "drop it (data.newest bounds the rows)",
    "text": "drop it",
}
"""What to do in place of a sample of rows that do not stand for themselves."""


class Train(SpecBlock):
    """How the net is trained."""

    epochs: Whole = Field(
        10,
        ge=1,
        description="Passes over the training rows. Default of nets of pictures, series and texts and of your own: "
        "those that make 400 to 3,000 steps; of a ready net of tables that is named: 10.",
    )
    epochs_per_pass: Whole = Field(
        1, ge=1, description="More than 1: an epoch takes a part of the training examples, so it validates more often."
    )
    batch: Batch = Field(
        256,
        ge=0,
        description="Examples of one optimiser step, over all ranks; auto (kept as 0): as many as fit and pay.",
    )
    optimiser: Optimiser = Field("adamw", description="The algorithm of the steps.")
    lr: float = Field(1e-3, gt=0, description="Learning rate: the largest of the schedule.")
    weight_decay: float = Field(0.01, ge=0, description="Decoupled where the optimiser has it so.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Of sgd.")
    nesterov: bool = Field(False, description="Use Nesterov momentum. For sgd.")
    schedule: Schedule = Field("cosine", description="How the learning rate falls.")
    cycles: Whole = Field(3, ge=1, description="restarts: number of cosines. step: number of levels.")
    decay: float = Field(
        0.1, gt=0, lt=1, description="Factor of lr: at each step, at each plateau, or from first to last (exponential)."
    )
    plateau_patience: Whole = Field(2, ge=1, description="plateau: epochs without improvement before lr falls.")
    warmup: float = Field(0.05, ge=0, lt=1, description="Share of all steps in which lr rises from zero.")
    clip_norm: float | None = Field(1.0, gt=0, description="The norm of the gradients is cut at this value.")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Share of each label that is spread over all classes.")
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: rare classes weigh as much as frequent ones."
    )
    loss: OwnFunction | None = Field(
        None,
        description="Your own loss: a function (output, target) -> the loss of each example, as torch tensors. "
        "Default: the loss that the goal's best prediction minimises.",
    )
    patience: Whole | None = Field(None, ge=1, description="Epochs without improvement before stopping early.")
    rows: Whole | None = Field(
        None,
        ge=1,
        description="Most training rows of a table, or pictures, that a model learns from: a sample drawn by seed, of "
        "a ranking one of groups. Validation and test rows all count. Default: all.",
    )
    refit: bool = Field(True, description="Fit chosen trees or linear models again, on validation rows too; no nets.")
    augment: Augment = Field(default_factory=Augment)
    ema: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Validate and save an exponential moving average of the weights, with this decay a step, such "
        "as 0.999.",
    )
    start: Start | None = None
    recent: Recent | None = None
    pretrain: Pretrain | None = None
    pseudo_labels: PseudoLabels | None = None
    precision: Precision = Field(
        "auto",
        description="auto: bf16 on a GPU that has it, else fp16; fp32 on a CPU. On a GPU fp32 has TF32 products, "
        "fp32-exact has not.",
    )
    on: str = Field("here", min_length=1, description="Where the best settings are trained: a place of places.yaml.")
    ranks: Whole = Field(1, ge=1, description="Processes on each node.")
    parallel: Parallel = Field("ddp", description="How ranks divide the work: see docs/how-to/parallel.md.")
    tensor: Whole | None = Field(
        None, ge=1, description="Tensor parallel size: ranks that share a layer. Default: all for tp, else 2."
    )
    stages: Whole | None = Field(
        None, ge=1, description="Pipeline parallel size: number of stages. Default: all ranks for pp, else 2."
    )
    replicas: Whole | None = Field(None, ge=1, description="Replica groups of hsdp; each group holds the whole net.")
    pipeline: Literal["gpipe", "1f1b"] = Field("1f1b", description="The order of the microbatches.")
    microbatches: Whole | None = Field(
        None, ge=1, description="Microbatches of a pipelined batch. Default: two a stage."
    )
    accumulate: Whole = Field(1, ge=1, description="Batches whose gradients make one step: less memory, the same time.")
    recompute: Literal["none", "full", "selective"] = Field(
        "none",
        description="Activation checkpointing: recompute all activations (full), or all except matrix products "
        "(selective).",
    )
    compile: bool | Literal["auto"] = Field(
        "auto",
        description="auto: on a GPU if the steps to come save more than compiling costs, by the times of the first "
        "steps; not on a CPU.",
    )
    gradient_hook: Literal["none", "fp16"] = Field(
        "none", description="Compress gradients before the all-reduce. For ddp."
    )
    nccl: dict[str, Whole | Annotated[str, Field(pattern=_NCCL_VALUE)]] = Field(
        default_factory=dict,
        description="Settings of NCCL by its own names, such as `NCCL_SOCKET_IFNAME: eth0`, for the ranks.",
        json_schema_extra={"propertyNames": {"pattern": _NCCL_NAME}},
    )
    shard_optimiser: bool = Field(False, description="Each rank of ddp keeps the optimiser state of its share.")
    memory_mb: Whole = Field(
        1024, ge=1, description="A larger split is streamed from disk in shuffled shards; a rank then holds this much."
    )
    threads: Whole | None = Field(
        None, ge=1, le=1024, description="Threads a rank; default: cores / (ranks x search workers)."
    )
    seed: Seed = Field(0, ge=0, description="Of weights, order and dropout: the same seed gives the same bits.")
    max_restarts: Whole = Field(3, ge=0, description="How often the ranks are started again after a rank or node died.")
    nodes: Nodes = Field(
        "1", description="Machines, each with `ranks` ranks: a number, or min:max to start with as many as there are."
    )
    async_checkpoints: bool = Field(True, description="Write checkpoints in the background while training goes on.")
    keep_checkpoints: Whole = Field(
        2, ge=2, description="Number of checkpoints that are stored. A damaged one is skipped for the next older one."
    )

    def check_rows(self, kind: Kind, space: Mapping[str, Dimension] | None) -> None:
        """Refuse a sample, set or searched, of rows that do not stand for themselves.

        Raises:
            ValueError: Names the kind of the data.
        """
        cure = _UNDIVIDED[kind]
        if cure and (self.rows is not None or "train.rows" in (space or {})):
            raise ValueError(
                f"train.rows samples rows that stand for themselves, which those of data.kind {kind} do not: {cure}"
            )

    @property
    def methods(self) -> list[str]:
        """The names of the set keys that only apply to nets trained by gradient descent."""
        named = ("ema", "start", "recent", "pretrain", "pseudo_labels")
        set_names = [name for name in named if getattr(self, name) is not None] + ["batch: auto"] * (self.batch == 0)
        return set_names + ["augment.function"] * (self.augment.function is not None)

    @model_validator(mode="after")
    def _methods_go_together(self) -> Train:
        if self.nesterov and (self.optimiser != "sgd" or not self.momentum):
            raise ValueError(
                f"nesterov is of sgd with momentum > 0, but optimiser is {self.optimiser}: drop one of them"
            )
        if self.parallel != "ddp" and self.batch == 0:
            raise ValueError(
                f"batch auto tries one rank by itself, so not with parallel {self.parallel}: give a number"
            )
        if self.num_nodes[0] > self.num_nodes[1]:
            raise ValueError(f"nodes {self.nodes}: the fewest come first, such as 1:4")
        split = {"tp", "pp"} & set(self.parallel.split("+"))
        if split and self.pretrain is not None:
            raise ValueError(f"pretrain learns with ddp, fsdp or hsdp, not with parallel {self.parallel}: drop one")
        return self

    @field_validator("nccl")
    @classmethod
    def _names_of_nccl(cls, settings: dict[str, int | str]) -> dict[str, int | str]:
        wrong = next((name for name in settings if not re.fullmatch(_NCCL_NAME, name)), None)
        if wrong is not None:
            raise ValueError(f"got the name {wrong!r}, expected a variable of NCCL, such as NCCL_SOCKET_IFNAME")
        return settings

    @model_validator(mode="after")
    def _own_loss_decides(self) -> Train:
        named = ["label_smoothing"] * bool(self.label_smoothing) + ["class_weights"] * (self.class_weights != "none")
        if self.loss is not None and named:
            raise ValueError(f"{named[0]} is of the built-in losses, but `loss` is your own: do it there, or drop it")
        return self

    @model_validator(mode="after")
    def _plan_fits(self) -> Train:
        try:
            check_plan(self, self.ranks)
        except UsageError as error:
            raise ValueError(str(error).removeprefix("train.")) from None
        return self

    def on_one_machine(self) -> Train:
        """Return the settings of a training on this machine; ranks and their plan stay if all training is here."""
        alone = {"ranks": 1, "parallel": "ddp", "tensor": None, "stages": None, "replicas": None}
        return self.model_copy(update={"nodes": "1", "on": "here", **({} if self.on == "here" else alone)})

    def parallel_dims(self, size: int) -> ParallelDims:
        """Return the arrangement of `size` ranks.

        Raises:
            UsageError: The ranks cannot be divided in this way; the message names numbers that work.
        """
        dims = ParallelDims.of(self.parallel, size, self.tensor, self.stages, self.replicas)
        return dims.pipelined(self.pipeline, self.batch, self.accumulate, self.microbatches)

    @property
    def num_nodes(self) -> tuple[int, int]:
        """The minimum and the maximum number of machines."""
        low, _, high = self.nodes.partition(":")
        return int(low), int(high or low)


def check_plan(train: Train, size: int) -> ParallelDims:
    """Check the settings against the plan, then return the arrangement.

    Raises:
        UsageError: Two settings exclude each other, or the ranks cannot be divided in this way.
    """
    for key in ("gradient_hook", "shard_optimiser"):
        if getattr(train, key) not in ("none", False) and train.parallel != "ddp":
            raise UsageError(
                f"train.{key}: got {getattr(train, key)} with train.parallel {train.parallel}, expected ddp: "
                "the other plans move and keep gradients in their own way"
            )
    if train.shard_optimiser and train.optimiser == "muon":
        raise UsageError(
            "train.shard_optimiser: got true with muon, which is two optimisers in one: take parallel: fsdp"
        )
    if train.compile is True and "tp" in train.parallel:
        raise UsageError("train.compile: got true with tensor parallelism, which torch cannot compile: leave it out")
    return train.parallel_dims(size)


class Spec(SpecBlock):
    """A whole `project.yaml`."""

    name: str = Field(
        pattern=NAME_PATTERN, description="Names the project in all tools: small letters, digits, `-` and `_`."
    )
    description: str = Field("", description="What the model predicts, for the card and the overview.")
    reads: list[str] = Field(
        [], description="Files and folders that own code reads in a way that Python cannot see, such as DuckDB's."
    )
    goal: Goal = Field(default_factory=Goal)
    data: Data
    model: Model = Field(default_factory=Model)
    search: Search = Field(default_factory=Search)
    train: Train = Field(default_factory=Train)
    judge: Judge = Field(default_factory=Judge)
    serve: Serve = Field(default_factory=Serve)
    monitor: Monitor = Field(default_factory=Monitor, validate_default=True)
    retrain: Retrain = Field(default_factory=Retrain)

    @field_validator("judge")
    @classmethod
    def _confidence_can_be_shown(cls, judge: Judge) -> Judge:
        """Reject a confidence that the resamples cannot show; not in `Judge`, since old verdicts must stay readable."""
        least_p, level = 2 / (judge.resamples + 1), 1 - judge.confidence
        if least_p >= level:
            raise ValueError(
                f"no model can pass at confidence {judge.confidence:g}: {judge.resamples} resamples give p-values "
                f"from {least_p:.2g} up, expected under {level:.2g}: say `resamples: {math.floor(2 / level)}` or more"
            )
        return judge

    @field_validator("monitor")
    @classmethod
    def _margin_follows_the_verdict(cls, monitor: Monitor, info: ValidationInfo) -> Monitor:
        """A loss that the verdict tolerates is no decay, unless `monitor.margin` says so."""
        judge = info.data.get("judge")
        if monitor.margin is not None or judge is None or judge.mode != "noninferiority":
            return monitor
        return monitor.model_copy(update={"margin": judge.margin})

    @model_validator(mode="after")
    def _judge_fits_the_split(self) -> Spec:
        split_by, kind = self.data.split.by, self.data.kind
        if self.judge.unit and (split_by != "time" or kind == "series"):
            raise ValueError(f"judge.unit is for tables split by time, but {kind} is split by {split_by}: drop it")
        several = len(self.data.targets) > 1 or self.data.quantiles is not None
        if self.judge.test == "mcnemar" and several:
            raise ValueError("judge.test: mcnemar compares one class a row, but a row has several outputs: drop it")
        if self.judge.test == "mcnemar" and (split_by in ("time", "group") or kind == "text"):
            raise ValueError(
                f"judge.test: mcnemar counts every row as independent, but {kind} is split by {split_by}: say "
                "`bootstrap`"
            )
        return self

    @model_validator(mode="after")
    def _pinball_has_its_quantile(self) -> Spec:
        if self.goal.metric == "pinball" and self.goal.quantile is None and self.data.quantiles is None:
            raise ValueError("goal.metric pinball needs `quantile`, such as 0.9, or `data.quantiles` for several")
        return self

    @model_validator(mode="after")
    def _patches_fit_the_image(self) -> Spec:
        if self.train.pretrain is not None:
            self.train.pretrain.check_patch(self.data.image)
        return self

    @model_validator(mode="after")
    def _methods_fit_the_model(self) -> Spec:
        methods = self.train.methods
        self.train.augment.check_kind(self.data.kind, self.search.space)
        self.train.check_rows(self.data.kind, self.search.space)
        if self.data.window is not None:
            self.data.window.check_plan(self.train.parallel)
        if self.retrain.rows and (self.data.split.by not in ("time", "position") or self.data.kind == "text"):
            raise ValueError(f"retrain.rows needs rows in order, but data.split.by is {self.data.split.by}: {ORDERED}")
        if self.data.weight is not None and self.judge.test == "mcnemar":
            raise ValueError("judge.test: mcnemar counts rows, but data.weight weighs them: say `bootstrap`")
        if self.data.weight is not None and (self.train.pretrain or self.train.pseudo_labels):
            raise ValueError("data.weight: train.pretrain and train.pseudo_labels use rows without a weight: drop one")
        if self.train.pseudo_labels and not self.data.unlabelled:
            raise ValueError("train.pseudo_labels needs rows without a label: say `data.unlabelled: true`")
        if self.data.kind not in ("table", "image"):
            refused = [f"train.{name}" for name in ("pretrain", "pseudo_labels") if name in methods]
            refused += ["train.recent"] * (self.data.kind == "text" and self.train.recent is not None)
            refused += ["data.unlabelled"] * self.data.unlabelled
            if refused:
                raise ValueError(f"{refused[0]} is for tables and images, but data.kind is {self.data.kind}: drop it")
        return self
