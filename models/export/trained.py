"""The model of a finished job: its core for the graph, and its predictions for the parity check."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.data.feeds import TEXT_BATCH
from models.data.preparation import Preparation
from models.errors import StoreError
from models.export.graph_builder import GraphBuilder
from models.export.trees import trees_part
from models.nets.catalogue import is_trees, net_name
from models.training.job import TREES_FILE, WEIGHTS_FILE, TrainingJob

if TYPE_CHECKING:
    from torch import nn

EXAMPLES_A_PASS = 256


def core_of(job: TrainingJob, preparation: Preparation) -> tuple[GraphBuilder, str]:
    """Return the trained model as ONNX nodes, and the name of its output.

    Raises:
        StoreError: The job's folder lacks the weights, or holds another net's.
        UserCodeError: The net cannot be exported.
    """
    if is_trees(net_name(job.model.net, preparation.kind)):
        return trees_part(_trees_text(job), preparation)
    from models.export.net_graph import net_part

    return net_part(net_of(job, preparation), preparation)


def validation_predictions(job: TrainingJob, preparation: Preparation, positions: np.ndarray) -> np.ndarray:
    """Return the trained model's own predictions for some validation examples, float64 in the form of `predict`.

    Args:
        job: The finished job.
        preparation: The preparation schema of the model.
        positions: Which examples of the validation split, int64 (examples,).
    """
    if is_trees(net_name(job.model.net, preparation.kind)):
        return _trees_predictions(job, preparation, positions)
    return _net_predictions(job, preparation, positions)


def num_validation_examples(job: TrainingJob) -> int:
    """Return the number of examples in the job's validation tensors."""
    from safetensors import safe_open

    with safe_open(job.tensors["validation"], framework="numpy") as file:
        name = "target" if "target" in file.keys() else "start"  # noqa: SIM118  not a dict
        return int(file.get_slice(name).get_shape()[0])


def net_of(job: TrainingJob, preparation: Preparation) -> nn.Module:
    """Return the trained net, in evaluation mode on the CPU.

    Raises:
        StoreError: The job's folder lacks the weights, or holds another net's.
    """
    from models.nets.sizes import Sizes
    from models.training.checkpoints.weights import load_net

    return load_net(job.model, Sizes.of(preparation), job.project, job.folder / WEIGHTS_FILE)


def _net_predictions(job: TrainingJob, preparation: Preparation, positions: np.ndarray) -> np.ndarray:
    import torch

    from models.training.batches.examples import open_examples
    from models.training.optimisation.losses import predictions, settle

    net = net_of(job, preparation)
    whole = job.model_copy(update={"fold": None, "sample": 1.0})
    examples = open_examples(whole, preparation)[1]
    at = torch.from_numpy(positions)
    with torch.inference_mode():
        passes = torch.split(at, TEXT_BATCH if preparation.kind == "text" else EXAMPLES_A_PASS)
        parts = [settle(net(**examples.gather(some)), examples.gather_target(some), preparation) for some in passes]
        output = torch.cat(parts).double()
    return np.asarray(predictions(output, preparation), np.float64)


def _trees_text(job: TrainingJob) -> str:
    path = job.folder / TREES_FILE
    try:
        return path.read_text()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}): train again") from error


def _trees_predictions(job: TrainingJob, preparation: Preparation, positions: np.ndarray) -> np.ndarray:
    import torch

    from models.training.batches.examples import open_examples
    from models.training.boosters import Boosters
    from models.training.optimisation.losses import predictions
    from models.training.tree_inputs import tree_inputs

    whole = job.model_copy(update={"fold": None, "sample": 1.0})
    inputs = tree_inputs(open_examples(whole, preparation)[1], preparation, torch.from_numpy(positions))
    raw = Boosters.of_text(_trees_text(job)).raw(inputs.features, 0, -1, threads=1)
    return np.asarray(predictions(torch.from_numpy(inputs.output(raw)), preparation), np.float64)
