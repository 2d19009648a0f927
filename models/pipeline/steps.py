"""The steps of the loop: the inputs, code and libraries that decide each result, and the plan of steps to run.

This table is the only place that declares a step's identity; the plan and the run both read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from models.pipeline.keys import Parts, differences
from models.pipeline.records import StepRecord
from models.project_spec.references import FamilyPart

ON_THE_CARD = (
    "ingest",
    "validate-raw",
    "prepare",
    "validate-prepared",
    "version",
    "search",
    "train",
    "export",
    "judge",
    "promote",
)
External = Literal["source", "feedback", "previous", "remote", "start", "champion", "reference", "equal_rows"]


@dataclass(frozen=True)
class Step:
    """One step and all its inputs. The runner passes no other input, and the key covers all inputs named here.

    Attributes:
        name: Name of the step.
        after: The earlier steps whose files it reads.
        results: The steps in `after` whose result (figures, measured costs) it reads too. A step that names another
            step only in `after` does not run again if that step ran again with the same files.
        external: Inputs that come from no step: see `Ledger`.
        reads: Paths in the spec; a leading `-` excludes one.
        code: The modules that decide its result. A pattern stands for modules that are imported by name.
        libraries: The libraries that decide its result.
        references: Paths in the spec that name code.
        family: The parts of a family's code that it runs, by the rows of the families (`models/nets/catalogue.py`).
    """

    name: str
    after: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    external: tuple[External, ...] = ()
    reads: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    family: tuple[FamilyPart, ...] = ()


_TRAINING = (
    *("name", "goal", "-goal.good_enough", "data.kind", "data.split.by", "model"),
    *("train", "-train.max_restarts", "-train.on"),
)
"""What a training reads of the spec, and each trial of a search."""
INPUT_ROWS, INPUT_NODES = "models.inputs.*.rows", "models.inputs.*.nodes"
"""What each kind of column says; their tables import it by name."""
ENCODING_CODE = ("models.data.encode", INPUT_ROWS)
"""What makes tensors of prepared rows."""
EXPORT_CODE = ("models.export.export", INPUT_ROWS, INPUT_NODES)
"""What makes the graph of a trained model."""
_TRAINING_CODE = (
    *ENCODING_CODE,
    "models.training.rank",
    "models.training.batches.flips",
    "models.export.validation_scores",
)
STEPS = (
    Step(
        "ingest",
        external=("source", "feedback", "previous"),
        reads=(
            "data.source",
            "data.kind",
            "data.id",
            "data.na_is_text",
            "data.dates",
            "data.decimal_commas",
            "data.image",
        ),
        code=("tasks.steps.ingest",),
        libraries=("pyarrow", "rdata", "pillow"),
        references=("data.source",),
    ),
    Step(
        "validate-raw",
        after=("ingest",),
        reads=("name", "data", "-data.source"),
        code=("tasks.steps.validate",),
        libraries=("great-expectations", "duckdb"),
        references=("data.expectations.expect",),
    ),
    Step(
        "prepare",
        after=("ingest",),
        external=("equal_rows",),
        reads=(
            *("data", "-data.source", "-data.expectations", "-data.show_rows", "judge.slices"),
            *("goal.metric", "goal.quantile", "goal.positive"),
        ),
        code=("tasks.steps.prepare", INPUT_ROWS),
        libraries=("pyarrow", "pandas", "numpy"),
        references=("data.features.make", "data.features.fit", "data.features.transform"),
    ),
    Step(
        "validate-prepared",
        after=("ingest", "prepare"),
        external=("reference",),
        reads=("name", "data", "-data.source", "monitor.seasonal"),
        code=("tasks.steps.validate",),
        libraries=("great-expectations", "duckdb"),
        references=("data.expectations.expect",),
    ),
    Step("version", after=("ingest", "prepare"), external=("remote",), reads=("name",)),
    Step(
        "search",
        after=("prepare",),
        external=("start",),
        reads=(*_TRAINING, "data.image", "-train.refit", "search", "-search.workers", "-search.on"),
        code=("tasks.steps.search", "models.planner.epoch_work", *_TRAINING_CODE),
        libraries=("torch", "optuna"),
        references=("model.net", "goal.metric", "train.loss", "train.augment.function"),
        family=("fit", "outputs"),
    ),
    Step(
        "train",
        after=("prepare", "search"),
        external=("start",),
        reads=_TRAINING,
        code=("tasks.steps.train", *_TRAINING_CODE),
        libraries=("torch",),
        references=("model.net", "goal.metric", "train.loss", "train.augment.function"),
        family=("fit", "outputs"),
    ),
    Step(
        "export",
        after=("prepare", "train"),
        reads=(
            "name",
            "model",
            "goal",
            "-goal.good_enough",
            "data.show_rows",
            "serve.variants",
            "serve.max_metric_loss",
            "serve.max_latency_ms",
            "train.seed",
        ),
        code=("tasks.steps.export", *EXPORT_CODE),
        libraries=("torch", "onnx", "onnxscript", "onnxruntime", "numpy", "scipy"),
        references=("model.net", "goal.metric"),
        family=("outputs", "graph"),
    ),
    Step(
        "judge",
        after=("ingest", "prepare", "export"),  # a champion may need columns no longer prepared
        results=("prepare", "export"),
        external=("champion",),
        reads=(
            *("name", "data.split", "data.show_rows", "goal", "judge", "-judge.promotion"),
            *("serve.max_latency_ms", "train.seed", "train.class_weights"),
        ),
        code=("tasks.steps.judge", INPUT_ROWS),
        libraries=("onnxruntime", "numpy", "scipy"),
        references=("goal.metric",),
    ),
    Step(
        "register",
        after=("validate-prepared", "version", "search", "train", "export", "judge"),
        results=("version", "search", "train", "export", "judge"),
        reads=("name",),
    ),
    Step("promote", after=("judge", "register"), results=("judge", "register"), reads=("name",)),
    Step(
        "card",
        after=ON_THE_CARD,
        results=ON_THE_CARD,
        reads=(
            "name",
            "description",
            "goal.positive",
            "data.source",
            "data.split.by",
            "data.show_rows",
            "judge.slices",
            "model.net",
            "train",
            "-train.max_restarts",
            "-train.on",
        ),
        code=("tasks.steps.card", "models.export.validation_scores", *ENCODING_CODE),
        libraries=("torch",),
        references=("model.net", "goal.metric"),
        family=("outputs",),
    ),
)
BY_NAME = {step.name: step for step in STEPS}
DATA_STEPS = STEPS[: STEPS.index(BY_NAME["search"])]
"""The steps before the search, which need no registry."""


@dataclass(frozen=True)
class PlannedStep:
    """The planned state of a step: `done` (recorded and intact), `run`, or `follow` (depends on an earlier step)."""

    step: str
    state: Literal["done", "run", "follow"]
    reasons: list[str] = field(default_factory=list)
    record: StepRecord | None = None


def plan(
    steps: Sequence[Step],
    current: Callable[[Step, Mapping[str, StepRecord]], tuple[Parts, StepRecord | None, str | None]],
    latest: Callable[[str], StepRecord | None],
) -> list[PlannedStep]:
    """Plan which steps would run, and why, from the records alone.

    Args:
        steps: In order, each after the steps it depends on.
        current: Returns a step's parts, given the records of the steps before it; the record of these parts or None;
            and why the record no longer counts, or None.
        latest: Returns the last record of a step, to name what has changed since.
    """
    records: dict[str, StepRecord] = {}
    planned = []
    for step in steps:
        waiting = [name for name in step.after if name not in records]
        if waiting:
            planned.append(PlannedStep(step.name, "follow", [f"after {', '.join(waiting)}"]))
            continue
        parts, record, trouble = current(step, records)
        if record and not trouble:
            records[step.name] = record
            planned.append(PlannedStep(step.name, "done", [], record))
        else:
            planned.append(PlannedStep(step.name, "run", [trouble] if trouble else _why(parts, latest(step.name))))
    return planned


def _why(parts: Parts, before: StepRecord | None) -> list[str]:
    if before:
        return differences(parts, before.parts)
    absent = [key.partition(":")[2] for key, value in parts.items() if key.startswith("file:") and value is None]
    return ["never run", *(f"file {name}: not there" for name in absent)]
