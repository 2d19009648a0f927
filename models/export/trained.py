"""The model of a finished job, and its outputs for validation examples.

Calibration, decision, shifts and weights are learnt from outputs of models that have not learnt from the same examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from models.data.feeds import TEXT_BATCH, spread_positions
from models.data.preparation import Preparation
from models.folds import Units
from models.judge.held_out import time_units
from models.kinds.data_kind import PerDataKind
from models.nets.catalogue import row_of
from models.project_spec.blocks import Kind
from models.project_spec.references import resolve
from models.training.ensemble import bags_of, combined, is_bagged, members_of
from models.training.job import WEIGHTS_FILE, TrainingJob

if TYPE_CHECKING:
    from torch import nn

Outputs = Callable[[TrainingJob, Preparation, np.ndarray], np.ndarray]
"""The raw outputs of a family's finished job for the examples at some positions that judge it."""
EXAMPLES_A_PASS: PerDataKind[int] = {"table": 256, "image": 256, "series": 256, "text": TEXT_BATCH}


def validation_predictions(job: TrainingJob, preparation: Preparation, positions: np.ndarray) -> np.ndarray:
    """Return the trained model's own predictions for some validation examples, float64 in the form of `predict`.

    Args:
        job: The finished job.
        preparation: The preparation schema of the model; its calibration and its shifts of quantiles count.
        positions: Which examples of the validation split, int64 (examples,).
    """
    return predictions_of(validation_outputs(job, preparation, positions), preparation)


def predictions_of(outputs: np.ndarray, preparation: Preparation) -> np.ndarray:
    """Return predictions, float64 in the form of `predict`, from raw outputs (example, output)."""
    import torch

    from models.training.optimisation.losses import predictions

    return np.asarray(predictions(torch.from_numpy(outputs), preparation), np.float64)


def validation_outputs(
    job: TrainingJob, preparation: Preparation, positions: np.ndarray, *, of_first_fit: bool = False
) -> np.ndarray:
    """Return the trained model's raw outputs, float64 (example, output), as `validation_predictions` takes them.

    Args:
        job: The finished job.
        preparation: The preparation schema of the model.
        positions: Which examples of the validation split, int64 (examples,).
        of_first_fit: Take a refitted model as it was before it learnt from these examples.
    """
    if members := members_of(job):
        outputs = [
            validation_outputs(member.job, preparation, positions, of_first_fit=of_first_fit) for member in members
        ]
        return combined(outputs, [member.weight for member in members], preparation.task)
    return judged_outputs((job.validated if of_first_fit else job).whole, preparation, positions)


def judged_outputs(job: TrainingJob, preparation: Preparation, positions: np.ndarray) -> np.ndarray:
    """Return the raw outputs of a job of one model for examples that judge it: of a fold those that it left out."""
    outputs_of: Outputs = resolve(row_of(job.model.net).outputs, job.project)
    return outputs_of(job, preparation, positions)


def num_validation_examples(tensors: dict[str, Path]) -> int:
    """Return the number of examples in the job's validation tensors."""
    from safetensors import safe_open

    with safe_open(tensors["validation"], framework="numpy") as file:
        name = "target" if "target" in file.keys() else "start"  # noqa: SIM118  not a dict
        return int(file.get_slice(name).get_shape()[0])


def units_of(job: TrainingJob, kind: Kind, splits: Sequence[str]) -> Units | None:
    """Return the units of independence of the job's examples in some splits: their groups, or stretches of time.

    None if each example is a unit of its own.
    """
    from models.training.batches.selection import KEY

    in_order = job.rolls(kind)
    keys = [_column(job.tensors[split], KEY) for split in splits]
    stored = [key for key in keys if key is not None]
    key = np.concatenate(stored) if stored else np.arange(num_validation_examples(job.tensors))
    if in_order:
        return Units(time_units(key), in_order=True)
    return Units(key) if stored else None


def _column(tensors: Path, name: str) -> np.ndarray | None:
    from safetensors import safe_open

    with safe_open(tensors, framework="numpy") as file:
        has_column = name in file.keys()  # noqa: SIM118  not a dict
        return np.asarray(file.get_tensor(name)) if has_column else None


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
    examples = open_examples(job, preparation)[1]
    indices = torch.from_numpy(positions)
    with torch.inference_mode():
        passes = torch.split(indices, EXAMPLES_A_PASS[preparation.kind])
        parts = [
            settle(net(**examples.gather(some)), examples.gather_target(some), preparation.task) for some in passes
        ]
        return np.asarray(torch.cat(parts).double().numpy())


class HeldOutExamples(NamedTuple):
    """Examples with the outputs of models that have not learnt from them.

    Attributes:
        outputs: Raw outputs, float64 (example, output).
        target: True values in the form for metrics.
        weight: float64 (example,); None without weights.
        units: The units of independence; None if each example is one.
    """

    outputs: np.ndarray
    target: np.ndarray
    weight: np.ndarray | None
    units: Units | None

    def some(self, limit: int) -> HeldOutExamples:
        """Return at most `limit` of them, evenly spread."""
        rows = spread_positions(len(self.target), limit)
        weight, units = self.weight, self.units
        return HeldOutExamples(
            self.outputs[rows],
            self.target[rows],
            None if weight is None else weight[rows],
            None if units is None else units.at(rows),
        )


def held_out_examples(job: TrainingJob, preparation: Preparation, limit: int | None = None) -> HeldOutExamples:
    """Return at most `limit` examples with outputs of a finished job; those of a refitted model are its first fit's."""
    from models.training.batches.examples import open_examples
    from models.training.model_choice import as_array

    if is_bagged(job):
        bags = bags_of(job)
        parts = [out_of_fold([member.job for member in bag], preparation) for bag in bags]
        weights = [sum(member.weight for member in bag) for bag in bags]
        outputs = combined([part.outputs for part in parts], weights, preparation.task)
        whole = parts[0]._replace(outputs=outputs)
        return whole if limit is None else whole.some(limit)
    count = num_validation_examples(job.tensors)
    positions = spread_positions(count, limit or count)
    outputs = validation_outputs(job, preparation, positions, of_first_fit=True)
    validation = open_examples(job.whole, preparation)[1]
    weight, units = as_array(validation.weights()), units_of(job, preparation.kind, ("validation",))
    return HeldOutExamples(
        outputs,
        validation.values()[positions],
        None if weight is None else weight[positions],
        None if units is None else units.at(positions),
    )


def out_of_fold(jobs: Sequence[TrainingJob], preparation: Preparation) -> HeldOutExamples:
    """Return all training and validation examples, in this order, with the outputs of a bag's models.

    Args:
        jobs: The finished jobs of all folds, in their order; each judges the examples of its fold.
        preparation: Of the data.
    """
    from models.training.batches.examples import open_examples
    from models.training.model_choice import as_array

    sides = [open_examples(job, preparation)[1] for job in jobs]
    positions = [np.asarray(side.keep) for side in sides]
    outputs = [judged_outputs(job, preparation, np.arange(len(side))) for job, side in zip(jobs, sides, strict=True)]
    order = np.argsort(np.concatenate(positions))
    weights = [weight for side in sides if (weight := as_array(side.weights())) is not None]
    return HeldOutExamples(
        np.concatenate(outputs)[order],
        np.concatenate([side.values() for side in sides])[order],
        np.concatenate(weights)[order] if weights else None,
        units_of(jobs[0], preparation.kind, ("train", "validation")),
    )
