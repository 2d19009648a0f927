"""The model of a finished job, and its outputs for validation examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from models.data.feeds import TEXT_BATCH
from models.data.preparation import Preparation
from models.folds import Units
from models.judge.held_out import time_units
from models.kinds.data_kind import PerDataKind
from models.nets.catalogue import row_of
from models.project_spec.blocks import Kind
from models.project_spec.references import resolve
from models.training.ensemble import combined, members_of
from models.training.job import WEIGHTS_FILE, TrainingJob

if TYPE_CHECKING:
    from torch import nn

Outputs = Callable[[TrainingJob, Preparation, np.ndarray], np.ndarray]
"""The raw outputs of a family's finished job for the validation examples at some positions."""
EXAMPLES_A_PASS: PerDataKind[int] = {"table": 256, "image": 256, "series": 256, "text": TEXT_BATCH}


def validation_predictions(
    job: TrainingJob, preparation: Preparation, positions: np.ndarray, *, of_first_fit: bool = False
) -> np.ndarray:
    """Return the trained model's own predictions for some validation examples, float64 in the form of `predict`.

    Args:
        job: The finished job.
        preparation: The preparation schema of the model; its calibration and its shifts of quantiles count.
        positions: Which examples of the validation split, int64 (examples,).
        of_first_fit: Take a refitted model as it was before it learnt from these examples.
    """
    return predictions_of(validation_outputs(job, preparation, positions, of_first_fit=of_first_fit), preparation)


def predictions_of(outputs: np.ndarray, preparation: Preparation) -> np.ndarray:
    """Return predictions, float64 in the form of `predict`, from raw outputs (example, output)."""
    import torch

    from models.training.optimisation.losses import predictions

    return np.asarray(predictions(torch.from_numpy(outputs), preparation), np.float64)


def validation_outputs(
    job: TrainingJob, preparation: Preparation, positions: np.ndarray, *, of_first_fit: bool = False
) -> np.ndarray:
    """Return the trained model's raw outputs, float64 (example, output), as `validation_predictions` takes them."""
    if members := members_of(job):
        outputs = [
            validation_outputs(member.job, preparation, positions, of_first_fit=of_first_fit) for member in members
        ]
        return combined(outputs, [member.weight for member in members], preparation.task)
    job = job.validated if of_first_fit else job
    outputs_of: Outputs = resolve(row_of(job.model.net).outputs, job.project)
    return outputs_of(job, preparation, positions)


def num_validation_examples(tensors: dict[str, Path]) -> int:
    """Return the number of examples in the job's validation tensors."""
    from safetensors import safe_open

    with safe_open(tensors["validation"], framework="numpy") as file:
        name = "target" if "target" in file.keys() else "start"  # noqa: SIM118  not a dict
        return int(file.get_slice(name).get_shape()[0])


def validation_units(job: TrainingJob, kind: Kind) -> Units | None:
    """Return the units of independence of the job's validation examples: their groups, or stretches of time.

    None if each example is a unit of its own.
    """
    from safetensors import safe_open

    from models.training.batches.selection import KEY

    in_order = job.rolls(kind)
    with safe_open(job.tensors["validation"], framework="numpy") as file:
        has_key = KEY in file.keys()  # noqa: SIM118  not a dict
        key = np.asarray(file.get_tensor(KEY)) if has_key else np.arange(num_validation_examples(job.tensors))
    if in_order:
        return Units(time_units(key), in_order=True)
    return Units(key) if has_key else None


def net_of(job: TrainingJob, preparation: Preparation) -> nn.Module:
    """Return the trained net, in evaluation mode on the CPU.

    Raises:
        StoreError: The job's folder lacks the weights, or holds another net's.
    """
    from models.nets.sizes import Sizes
    from models.training.checkpoints.weights import load_net

    return load_net(job.model, Sizes.of(preparation, job.model.net), job.project, job.folder / WEIGHTS_FILE)


def net_outputs(job: TrainingJob, preparation: Preparation, positions: np.ndarray) -> np.ndarray:
    """Return the raw outputs of a torch net for validation examples, float64 (example, output)."""
    import torch

    from models.training.batches.examples import open_examples
    from models.training.optimisation.losses import settle

    net = net_of(job, preparation)
    examples = open_examples(job.whole, preparation)[1]
    indices = torch.from_numpy(positions)
    with torch.inference_mode():
        passes = torch.split(indices, EXAMPLES_A_PASS[preparation.kind])
        parts = [
            settle(net(**examples.gather(some)), examples.gather_target(some), preparation.task) for some in passes
        ]
        return np.asarray(torch.cat(parts).double().numpy())
