"""Pseudo-labels: a teacher's predictions for unlabelled rows, used where its confidence is high enough.

Source: Lee 2013 (pseudo-label), Xie et al. 2020 (noisy student).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from models.data.preparation import Preparation
from models.distributed.world import World
from models.errors import UsageError
from models.kinds.task import TASKS
from models.nets.sizes import Sizes
from models.training.batches.example_set import ExampleSet
from models.training.batches.examples import open_unlabelled
from models.training.checkpoints.weights import load_net, save_weights, weights_sha256
from models.training.job import WEIGHTS_FILE, TrainingJob

TAKEN = "pseudo"
LABELS_FILE = "labels.safetensors"
_BATCH = 512


@dataclass(frozen=True)
class PseudoLabelFile:
    """A file of `position` (in the unlabelled rows) and `target`, its hash, and `counts`: taken and unlabelled rows."""

    path: Path
    sha256: str
    counts: dict[str, int]


def give_labels(teacher: TrainingJob, confidence: float, world: World) -> PseudoLabelFile:
    """Return a finished teacher's labels with at least `confidence`. Every rank must call it.

    Rank 0 computes them once for all ranks.

    Raises:
        UsageError: The task is a regression, whose predictions have no confidence.
        DataError: There is no unlabelled row.
    """
    preparation = Preparation.load(teacher.prepared)
    if not TASKS[preparation.task].has_classes:
        raise UsageError(
            f"train.pseudo_labels: got task {preparation.task}, which does not say how sure it is: for classes only, "
            "drop it"
        )
    path = teacher.folder / LABELS_FILE
    unlabelled = open_unlabelled(teacher, preparation)
    if world.is_first and not path.exists():
        sizes = Sizes.of(preparation, teacher.model.net)
        net = load_net(teacher.model, sizes, teacher.project, teacher.folder / WEIGHTS_FILE)
        chance, label = confident(net, unlabelled)
        position = torch.nonzero(chance >= confidence).flatten()
        save_weights(path, {"position": position, "target": label[position]})
    world.gather(None)
    num_taken = len(load_file(path)["position"])
    return PseudoLabelFile(path, weights_sha256(path), {"taken": num_taken, "unlabelled": len(unlabelled)})


@torch.no_grad()
def confident(net: torch.nn.Module, examples: ExampleSet) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the probability of the likeliest class of each example, (n,), and that class, int64 (n,)."""
    positions = []
    for low in range(0, len(examples), _BATCH):
        output = net(**examples.gather(torch.arange(low, min(low + _BATCH, len(examples))))).double()
        both = torch.cat([-output, output], dim=1) / 2 if output.shape[1] == 1 else output
        positions.append(both.softmax(dim=1).max(dim=1))
    return torch.cat([part.values for part in positions]), torch.cat([part.indices for part in positions])
