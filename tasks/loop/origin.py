"""Initial weights for `train.start`: the version that the step's key names, downloaded and verified."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from models.data.preparation import PREPARATION_FILE
from models.errors import UsageError
from models.nets.catalogue import ENSEMBLE, is_descent
from models.project_spec.blocks import Model
from models.project_spec.references import ALIASES, weights_file
from models.training.checkpoints.weights import weights_sha256
from models.training.job import JOB_FILE, WEIGHTS_FILE, InitialWeights
from tasks.loop.loop import Inputs, Loop
from tasks.loop.step_cache import FRESH
from tasks.mlflow.model_cache import cached_version


@dataclass(frozen=True)
class TrainingStart:
    """The initial weights of a training, or None without; `model` is the net of these weights, if known."""

    origin: InitialWeights | None = None
    model: dict[str, Any] = field(default_factory=dict)

    def arguments(self, model: Model) -> Model:
        """Return the spec's model; arguments that the spec does not set come from the trained model."""
        if self.model.get("net") != model.net:
            return model
        return model.model_copy(update={"arguments": {**self.model["arguments"], **model.arguments}})


def begin(loop: Loop, inputs: Inputs) -> TrainingStart:
    """Return the initial weights of the step `search` or `train`, whose inputs these are.

    A champion (or another alias) that is no single net, such as an ensemble, gives no weights: training begins fresh.

    Raises:
        UsageError: The version that the spec names by its number is no single net.
        StoreError: The version's files cannot be fetched, or are not those that were registered.
    """
    start = loop.spec.train.start
    if start is None:
        return TrainingStart()
    step, identity = inputs.step.name, str(inputs.external("start"))
    if identity == FRESH:
        loop.report.note(f"{step}: there is no {start.weights} to begin with yet: training begins fresh")
        return TrainingStart()
    if identity.startswith("file:"):
        path = weights_file(start.weights, loop.project.folder)
        return TrainingStart(InitialWeights(weights=path, sha256=weights_sha256(path), label=str(path)))
    number = identity.partition(":")[0]
    names = (WEIGHTS_FILE, PREPARATION_FILE, JOB_FILE)
    folder, label = cached_version(loop.workspace, loop.spec.name, number, names).folder, f"version {number}"
    model = json.loads((folder / JOB_FILE).read_text())["model"]
    if model["net"] == ENSEMBLE or not is_descent(model["net"]):
        if start.weights not in ALIASES:
            raise UsageError(
                f"train.start.weights: got {label}, which is of model.net {model['net']}, expected a version of a net "
                "trained by gradient descent: name another, or leave train.start out"
            )
        loop.report.note(
            f"{step}: the {start.weights} ({label}) is of model.net {model['net']} and has no weights to begin with: "
            "training begins fresh"
        )
        return TrainingStart()
    weights = folder / WEIGHTS_FILE
    origin = InitialWeights(weights=weights, sha256=weights_sha256(weights), label=f"{loop.spec.name} {label}")
    loop.report.note(f"{step}: begins with {origin.label}")
    return TrainingStart(origin, model)
