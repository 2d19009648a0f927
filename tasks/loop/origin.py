"""Initial weights for `train.start`: the version that the step's key names, downloaded and verified."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from models.data.preparation import PREPARATION_FILE, Preparation
from models.errors import UsageError, first_of
from models.inputs.record import DerivedInput
from models.nets.catalogue import can_begin, net_name
from models.project_spec.blocks import Model
from models.project_spec.references import ALIASES, weights_file
from models.training.checkpoints.weights import weights_sha256
from models.training.job import JOB_FILE, WEIGHTS_FILE, InitialWeights
from tasks.loop.inputs import Inputs
from tasks.loop.loop import Loop
from tasks.loop.step_cache import FRESH
from tasks.mlflow.model_cache import cached_version

SHOWN = 6
"""Most inputs that a note names."""


def begin(loop: Loop, inputs: Inputs, nets: Sequence[str]) -> InitialWeights | None:
    """Return the initial weights of the step `search` or `train`; None without, or if none of its nets can use them.

    A champion (or another alias) may be of any model: where no net can begin with it, training begins fresh.

    Args:
        loop: The loop.
        inputs: Those of the step.
        nets: The nets that the step trains, by their resolved names.

    Raises:
        UsageError: No net can begin with the version that the spec names by its number.
        StoreError: The version's files cannot be fetched, or are not those that were registered.
    """
    start = loop.spec.train.start
    if start is None:
        return None
    step, identity = inputs.step.name, str(inputs.external("start"))
    if identity == FRESH:
        loop.report.note(f"{step}: there is no {start.weights} to begin with yet: training begins fresh")
        return None
    if identity.startswith("file:"):
        path = weights_file(start.weights, loop.project.folder)
        return InitialWeights(weights=path, sha256=weights_sha256(path), label=str(path))
    number = identity.partition(":")[0]
    names = (WEIGHTS_FILE, PREPARATION_FILE, JOB_FILE)
    folder, label = cached_version(loop.workspace, loop.spec.name, number, names).folder, f"version {number}"
    model = Model.model_validate(json.loads((folder / JOB_FILE).read_text())["model"])
    model = model.model_copy(update={"net": net_name(model.net, loop.spec.data.kind)})
    fitting = [net for net in nets if can_begin(net, model.net, start.partial)]
    if not fitting:
        if start.weights not in ALIASES:
            raise UsageError(_refusal(label, model.net, nets))
        loop.report.note(
            f"{step}: the {start.weights} ({label}) is of model.net {model.net}, which has no weights for "
            f"{', '.join(nets)}: training begins fresh"
        )
        return None
    changed = _other_derived(folder, inputs) if start.weights in ALIASES else []
    if changed:
        loop.report.note(
            f"{step}: the {start.weights} ({label}) has other inputs than these rows give: "
            f"{first_of(changed, SHOWN)}: training begins fresh"
        )
        return None
    label, weights = f"{loop.spec.name} {label}", folder / WEIGHTS_FILE
    those = f"{', '.join(fitting)} " if len(fitting) < len(nets) else ""
    loop.report.note(f"{step}: {those}begins with {label}")
    return InitialWeights(weights=weights, sha256=weights_sha256(weights), label=label, model=model)


def _other_derived(folder: Path, inputs: Inputs) -> list[str]:
    """Return the inputs derived from columns that either the version or the prepared rows have: the rows decide them.

    A column gets or loses one from one day to the next, as when its first values are missing.
    """
    if not (folder / PREPARATION_FILE).exists():
        return []
    before, now = (
        {part.name for part in Preparation.load_schema(place).of(DerivedInput)}
        for place in (folder, inputs["prepare"].folder)
    )
    return sorted(before ^ now)


def _refusal(label: str, theirs: str, nets: Sequence[str]) -> str:
    expected = [net for net in nets if can_begin(net, net)] or ["a net trained by gradient descent"]
    cure = f"say model.net: {theirs}" if can_begin(theirs, theirs) else "leave train.start out"
    return (
        f"train.start.weights: got {label}, which is of model.net {theirs}, expected a version of "
        f"{' or '.join(expected)}: name another version, or {cure}"
    )
