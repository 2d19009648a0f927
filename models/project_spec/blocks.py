"""What a project says of its model: the strict pydantic models behind `project.yaml`.

One class a block, each with defaults good enough that a data source and a target train something sensible.
Reading a file, its line numbers and the command line's overrides is `models/project_spec/reader.py`.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from models.project_spec.block import Fraction, NumberText, Reference, SpecBlock
from models.project_spec.methods import Augment, Optimiser, Pretrain, PseudoLabels, Recent, Schedule, Start
from models.project_spec.monitor_and_retrain import Monitor, Retrain
from models.project_spec.serve import Serve

NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,62}$"

Task = Literal["binary", "multiclass", "regression", "language"]
Kind = Literal["table", "image", "series", "text"]
Parallel = Literal["ddp", "fsdp", "hsdp", "tp", "pp", "ddp+tp", "fsdp+tp", "ddp+pp", "fsdp+pp"]


class Goal(SpecBlock):
    """What the model is for: the metric that decides, and the least that is good enough."""

    metric: Reference | None = Field(
        None, description="A short name or a reference; default roc_auc, accuracy, mae or bits_per_char by task."
    )
    direction: Literal["maximize", "minimize"] | None = Field(
        None, description="Default: the metric's own; needed for a metric of your own."
    )
    good_enough: float | None = Field(None, description="The least (or most) value with which a model may serve.")


class Split(SpecBlock):
    """How rows are divided into train, validation and test. Membership is stable as data grows."""

    by: Literal["time", "group", "stratified", "random", "hash", "position"] = Field(
        "random",
        description="time: oldest rows train; position: first rows train; group: a group is never divided; "
        "hash: by a key column. Text is always by position.",
    )
    column: str | None = Field(None, description="The time, group or key column that `by` needs.")
    validation: Fraction = Field(0.15, description="Share of the rows used to choose and to stop.")
    test: Fraction = Field(0.15, description="Share of the rows frozen for the verdict.")
    seed: int = 0

    @model_validator(mode="after")
    def _column_where_needed(self) -> Split:
        if self.by in ("time", "group", "hash") and not self.column:
            raise ValueError(f"split by {self.by} needs `column`: name the {self.by} column")
        if self.validation + self.test >= 0.9:
            raise ValueError(f"validation + test is {self.validation + self.test:g}: leave at least 0.1 to train on")
        return self


class Features(SpecBlock):
    """Which columns the model may see, and as what."""

    columns: list[str] | None = Field(None, description="Use just these; default: every column but the target.")
    drop: list[str] = Field(default_factory=list, description="Never use these (leaks, ids).")
    kinds: dict[str, Literal["numeric", "categorical"]] = Field(
        default_factory=dict, description="Override the guessed kind of a column."
    )
    make: Reference | None = Field(None, description="Your function: raw DataFrame -> DataFrame with more columns.")
    impute: Literal["median", "mean", "zero"] = "median"
    normalise: Literal["standard", "robust", "minmax", "none"] = "standard"
    max_categories: int = Field(1000, ge=2, description="The commonest are kept; the rest share one index.")


class Expectation(SpecBlock):
    """One Great Expectations check, by its snake_case name, with its own arguments."""

    expect: str = Field(description="For example `column_values_to_be_between`.")
    arguments: dict[str, Any] = Field(default_factory=dict)
    severity: Literal["reject", "warn"] = "reject"
    on: Literal["raw", "prepared"] = "raw"


class Image(SpecBlock):
    """The shape of an image example: the column holds height x width x channels bytes."""

    column: str = "image"
    height: int = Field(gt=0)
    width: int = Field(gt=0)
    channels: int = Field(1, ge=1)


class Window(SpecBlock):
    """How a series becomes examples: `length` past steps predict the target `horizon` steps ahead."""

    length: int = Field(gt=0)
    horizon: int = Field(1, ge=1)
    stride: int = Field(1, ge=1)


class Text(SpecBlock):
    """How a text becomes examples: windows of `length` characters, each of which predicts the one after it."""

    column: str = "text"
    length: int = Field(128, ge=2)
    stride: int | None = Field(
        None, ge=1, description="Characters between the starts of training windows; default: length, so none overlap."
    )


_ORDERED = "say `split: {by: time, column: ...}`, or drop it"


class Data(SpecBlock):
    """Where the data comes from and what it means."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"kind": {"const": "text"}}, "required": ["kind"]},
            "else": {"required": ["target"]},
        }
    )

    source: Reference = Field(
        description="A file, a folder of Parquet or of text, `pypi:`/`npm:`/`debian:` package!file, or a function."
    )
    target: str = Field(min_length=1, description="The column to predict; text needs none.")
    kind: Kind = "table"
    task: Task | None = Field(None, description="Default: guessed from the target.")
    split: Split = Field(default_factory=Split)
    features: Features = Field(default_factory=Features)
    expectations: list[Expectation] = Field(default_factory=list)
    id: str | None = Field(None, description="The column that names a row, for split and feedback. Never an input.")
    deduplicate: bool = Field(False, description="Drop rows that equal an earlier one in every column.")
    newest: int | None = Field(
        None, ge=100, description="Train on so many of the newest training rows; for a split by time or position."
    )
    unlabelled: bool = Field(
        False, description="Keep rows without a target, for train.pretrain and train.pseudo_labels."
    )
    image: Image | None = None
    window: Window | None = None
    text: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _text_predicts_itself(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("kind") != "text":
            return values
        text, split = values.get("text") or {}, values.get("split") or {}
        column = text.get("column", "text") if isinstance(text, dict) else text.column
        split = {"by": "position", **split} if isinstance(split, dict) else split
        return {"target": column, **values, "text": text, "split": split}

    @model_validator(mode="after")
    def _kind_has_its_shape(self) -> Data:
        if self.kind == "image" and self.image is None:
            raise ValueError("kind image needs `data.image` with height and width")
        if self.kind == "series" and self.window is None:
            raise ValueError("kind series needs `data.window` with length")
        if self.kind == "series" and self.split.by != "time":
            raise ValueError("kind series needs `data.split.by: time` with its column: shuffled series leak")
        if self.kind == "series" and self.task not in (None, "regression"):
            raise ValueError(
                f"kind series predicts a number, got task {self.task}: remove `task`, or let the source make each "
                "window a row and say `kind: table`"
            )
        if self.kind != "text" and self.task == "language":
            raise ValueError("task language is for `kind: text`")
        if self.newest and (self.split.by not in ("time", "position") or self.kind == "text"):
            raise ValueError(f"newest needs rows in order, but {self.kind} is split by {self.split.by}: {_ORDERED}")
        if self.text is not None:
            self._check_text(self.text)
        return self

    def _check_text(self, text: Text) -> None:
        if self.kind != "text":
            raise ValueError("`data.text` is for text: say `kind: text`, or remove it")
        if self.target != text.column:
            raise ValueError(f"kind text has no target ({self.target!r}): every character is one; remove `target`")
        if self.split.by != "position":
            raise ValueError(f"kind text is split by position, got {self.split.by}: shuffled text leaks; remove `by`")
        if self.task not in (None, "language") or self.features != Features():
            raise ValueError("kind text has no `task` and no `features`: remove them")


class Model(SpecBlock):
    """The architecture: a ready net (mlp, cnn, gru, lstm, transformer, decoder, trees) or a reference to your own."""

    net: Reference = Field("auto", description="auto: mlp (tables), cnn (images), gru (series), decoder (text).")
    arguments: dict[str, Any] = Field(default_factory=dict)


class Dimension(SpecBlock):
    """One searched value: a range (`low`, `high`) or `choices`."""

    low: float | None = None
    high: float | None = None
    log: bool = False
    step: float | None = Field(None, gt=0)
    integer: bool = False
    choices: list[Any] | None = Field(None, min_length=1)

    @field_validator("low", "high", "step", mode="before")
    @classmethod
    def _whole_numbers_are_numbers(cls, value: Any) -> Any:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _range_or_choices(self) -> Dimension:
        if (self.choices is None) == (self.low is None or self.high is None):
            raise ValueError("give either `choices`, or both `low` and `high`")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low {self.low:g} must be under high {self.high:g}")
        if self.log and (self.low is None or self.low <= 0):
            raise ValueError("a log range needs low > 0")
        if self.log and self.integer and self.low is not None and self.low < 1:
            raise ValueError(f"a log range of integers needs low >= 1, got {self.low:g}: say `low: 1`, or drop `log`")
        if self.log and self.step and not (self.integer and self.step == 1):
            raise ValueError(f"a log range has no step, got {self.step:g}: drop `log` or `step`, or name `choices`")
        if self.integer and self.step and self.step % 1:
            raise ValueError(f"integers need a whole step, got {self.step:g}: say `step: 1`, or drop `integer`")
        return self


class Search(SpecBlock):
    """How hyperparameters are looked for. `trials: 0` trains the spec's own settings."""

    trials: int = Field(10, ge=0)
    sampler: Literal["tpe", "random", "gp", "cmaes", "nsga2", "grid"] = "tpe"
    pruner: Literal["median", "hyperband", "halving", "none"] = "median"
    workers: int = Field(1, ge=1, description="Trials at once. With more than one their order is not replayable.")
    timeout_s: float | None = Field(None, gt=0)
    folds: int = Field(1, ge=1, description="k > 1: k-fold cross-validation over train and validation rows.")
    epochs: int | None = Field(None, ge=1, description="Epochs of a trial; default: half of train.epochs.")
    sample: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="Share of the training rows a trial sees.")
    space: dict[str, Dimension] | None = Field(
        None,
        description="Keys are spec paths: train.lr, model.hidden. Default: the net's own, without what the spec sets.",
    )
    settings: dict[str, Any] | None = Field(
        None, description="Values found before, by spec path: trained with as they are. Needs `trials: 0`."
    )

    @field_validator("space")
    @classmethod
    def _searchable(cls, space: dict[str, Dimension] | None) -> dict[str, Dimension] | None:
        for path in space or ():
            if path.split(".")[0] not in ("train", "model") or path.count(".") != 1:
                raise ValueError(f"cannot search {path!r}: expected train.<key> or model.<argument>")
        return space

    @model_validator(mode="after")
    def _settings_need_no_search(self) -> Search:
        if self.settings is not None and self.trials:
            raise ValueError(f"settings are trained with as they are, but trials is {self.trials}: say `trials: 0`")
        return self


def _auto_is_zero(value: Any) -> Any:
    """Kept as 0, so that a batch is always a number; dumped as `auto` again, so that a 0 in a spec is a mistake."""
    if value == 0 and not isinstance(value, bool):
        raise PydanticKnownError("greater_than", {"gt": 0})
    return 0 if value == "auto" else value


Batch = Annotated[
    int,
    BeforeValidator(_auto_is_zero),
    PlainSerializer(lambda batch: batch or "auto", return_type=Any),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}]}),
]


class Train(SpecBlock):
    """How the weights are found."""

    epochs: int = Field(10, ge=1)
    epochs_per_pass: int = Field(
        1, ge=1, description="More than 1: an epoch takes a part of the training examples, so it validates more often."
    )
    batch: Batch = Field(
        256,
        ge=0,
        description="Examples of one optimiser step, over all ranks; auto (kept as 0): as many as fit and pay.",
    )
    optimiser: Optimiser = "adamw"
    lr: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1, description="Of sgd.")
    nesterov: bool = Field(False, description="Of sgd: look ahead along the momentum.")
    schedule: Schedule = "cosine"
    cycles: int = Field(3, ge=1, description="restarts: number of cosines. step: number of levels.")
    decay: float = Field(
        0.1, gt=0, lt=1, description="Factor of lr: at each step, at each plateau, or from first to last (exponential)."
    )
    plateau_patience: int = Field(2, ge=1, description="plateau: epochs without improvement before lr falls.")
    warmup: float = Field(0.05, ge=0, lt=1, description="Share of all steps in which lr rises from zero.")
    clip_norm: float | None = Field(1.0, gt=0)
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    class_weights: Literal["none", "balanced"] = "none"
    patience: int | None = Field(None, ge=1, description="Epochs without improvement before stopping early.")
    augment: Augment = Field(default_factory=Augment)
    ema: float | None = Field(
        None, gt=0, lt=1, description="Judge and keep a running mean of the weights, such as 0.999 of it a step."
    )
    start: Start | None = None
    recent: Recent | None = None
    pretrain: Pretrain | None = None
    pseudo_labels: PseudoLabels | None = None
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    ranks: int = Field(1, ge=1)
    parallel: Parallel = Field("ddp", description="How ranks divide the work: see guides/parallel.md.")
    tensor: int | None = Field(None, ge=1, description="Ranks that share a layer; default: all for tp, else 2.")
    stages: int | None = Field(None, ge=1, description="Ranks one behind the other; default: all for pp, else 2.")
    replicas: int | None = Field(None, ge=1, description="Of hsdp: groups that each hold the whole net.")
    pipeline: Literal["gpipe", "1f1b", "interleaved"] = "1f1b"
    microbatches: int | None = Field(None, ge=1, description="Pieces of a pipelined batch; default: two a stage.")
    accumulate: int = Field(1, ge=1)
    recompute: Literal["none", "full", "selective"] = Field(
        "none", description="Forget activations and compute them again: all, or all but the products of matrices."
    )
    compile: bool = False
    gradient_hook: Literal["none", "fp16", "powersgd"] = Field("none", description="Smaller gradient messages, of ddp.")
    shard_optimiser: bool = Field(False, description="Each rank of ddp keeps the optimiser state of its share.")
    memory_mb: int = Field(
        1024, ge=1, description="A larger split is streamed from disk in shuffled shards; a rank then holds this much."
    )
    threads: int | None = Field(None, ge=1, description="Threads a rank; default: cores / (ranks x search workers).")
    seed: int = Field(0, ge=0)
    max_restarts: int = Field(3, ge=0, description="How often a gang is started again when a rank or node dies.")
    nodes: NumberText = Field(
        "1",
        pattern=r"^[1-9]\d*(:[1-9]\d*)?$",
        description="Machines, each with `ranks` ranks: a number, or min:max to go on with fewer and take more.",
    )
    async_checkpoints: bool = Field(True, description="Write checkpoints beside the training, not in between.")
    keep_checkpoints: int = Field(2, ge=2, description="The newest ones; a damaged one is passed over for the next.")

    @property
    def methods(self) -> list[str]:
        """Names of the keys asked for that only nets trained by gradient descent have."""
        named = ("ema", "start", "recent", "pretrain", "pseudo_labels")
        return [name for name in named if getattr(self, name) is not None] + ["batch: auto"] * (self.batch == 0)

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

    @model_validator(mode="after")
    def _plan_fits(self) -> Train:
        from models.errors import UsageError
        from models.project_spec.parallel_dims import check_plan

        try:
            check_plan(self, self.ranks)
        except UsageError as error:
            raise ValueError(str(error).removeprefix("train.")) from None
        return self

    @property
    def num_nodes(self) -> tuple[int, int]:
        """Fewest and most machines."""
        low, _, high = self.nodes.partition(":")
        return int(low), int(high or low)


class Judge(SpecBlock):
    """How a challenger is compared with the champion on the frozen test rows."""

    test: Literal["bootstrap", "mcnemar"] = Field("bootstrap", description="mcnemar: for goal.metric accuracy.")
    mode: Literal["superiority", "noninferiority"] = "noninferiority"
    margin: float = Field(0.0, ge=0, description="In the metric's own unit: must win by it, or may lose by it.")
    confidence: float = Field(0.95, gt=0.5, lt=1)
    resamples: int = Field(1000, ge=100)
    min_samples: int = Field(30, ge=1, description="Fewer test examples refuse a promotion.")
    slices: list[str] = Field(default_factory=list, description="Columns whose every value is judged by itself.")
    slice_margin: float | None = Field(None, ge=0, description="How much a slice may lose; default: not gated.")
    max_latency_ms: float | None = Field(None, gt=0, description="One row, one thread, ONNX Runtime, p50.")
    max_size_mb: float | None = Field(None, gt=0)


class Spec(SpecBlock):
    """A whole `project.yaml`."""

    name: str = Field(pattern=NAME_PATTERN)
    description: str = ""
    goal: Goal = Field(default_factory=Goal)
    data: Data
    model: Model = Field(default_factory=Model)
    search: Search = Field(default_factory=Search)
    train: Train = Field(default_factory=Train)
    judge: Judge = Field(default_factory=Judge)
    serve: Serve = Field(default_factory=Serve)
    monitor: Monitor = Field(default_factory=Monitor)
    retrain: Retrain = Field(default_factory=Retrain)

    @field_validator("judge")
    @classmethod
    def _confidence_can_be_shown(cls, judge: Judge) -> Judge:
        """Here and not in `Judge`: a verdict of such rules, made before they were refused, must stay readable."""
        least, level = 2 / (judge.resamples + 1), 1 - judge.confidence
        if least >= level:
            raise ValueError(
                f"no model can pass at confidence {judge.confidence:g}: {judge.resamples} resamples give p-values "
                f"from {least:.2g} up, expected under {level:.2g}: say `resamples: {math.floor(2 / level)}` or more"
            )
        return judge

    @model_validator(mode="after")
    def _methods_fit_the_model(self) -> Spec:
        methods = self.train.methods
        if self.retrain.rows and (self.data.split.by not in ("time", "position") or self.data.kind == "text"):
            raise ValueError(f"retrain.rows needs rows in order, but data.split.by is {self.data.split.by}: {_ORDERED}")
        if self.model.net == "trees" and self.retrain.start == "champion":
            raise ValueError("retrain.start: champion is for nets trained by gradient descent, but model.net is trees")
        if self.model.net == "trees" and methods:
            raise ValueError(f"train.{methods[0]} is for nets trained by gradient descent, but model.net is trees")
        if self.train.pseudo_labels and not self.data.unlabelled:
            raise ValueError("train.pseudo_labels needs rows without a label: say `data.unlabelled: true`")
        if self.data.kind not in ("table", "image"):
            refused = [f"train.{name}" for name in ("pretrain", "pseudo_labels") if name in methods]
            refused += ["train.recent"] * (self.data.kind == "text" and self.train.recent is not None)
            refused += ["data.unlabelled"] * self.data.unlabelled
            if refused:
                raise ValueError(f"{refused[0]} is for tables and images, but data.kind is {self.data.kind}: drop it")
        return self
