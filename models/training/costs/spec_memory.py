"""Bounds of the memory of a net of the catalogue, without torch: only what may exceed it is estimated with torch.

Weights that cannot fit are refused when a spec is read, before any data is made.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.cores import usable_memory
from models.errors import TrainingError, UsageError
from models.kinds.data_kind import PerDataKind
from models.kinds.task import Task
from models.nets.arguments import whole_numbers
from models.nets.catalogue import row_of
from models.project_spec.blocks import Spec
from models.training.costs.table_memory import fitted_rows

if TYPE_CHECKING:
    from models.data.preparation import Preparation
    from models.nets.sizes import Sizes
    from models.training.job import TrainingJob

# Generous: a layer of width w has 12 w^2 weights in a transformer, 8 w^2 in an LSTM, and all convolutions of a CNN have
# 18 w^2 if the last stage has w channels. Each weight has 16 bytes with its gradient and AdamW's state.
_WEIGHTS_OF_LAYER, _BYTES = 20, 16
# A window of text, whose length changes no weights.
_LENGTH = 8
# What every GPU has, so that most nets need no question.
_SMALL_GPU = 4e9
# Numbers that a block of width 1 keeps of a position for the backward pass, at most 32 in the nets of the catalogue,
# and of each pair of positions and head, 3 in attention with dropout.
_OF_POSITION, _OF_PAIR = 40, 4
# Of each output: its logit, the loss's copy and the gradients of both.
_OF_OUTPUT = 4
_NUMBER = 4


def check_weights(spec: Spec, net: str, base: Path, gpus: int) -> None:
    """Refuse a net whose weights, gradients and optimiser state cannot fit, whatever the data turns out to be.

    The net is built on the meta device for the least data that there can be, so it is larger in truth. Activations are
    not counted: the batch holds no more rows than the data, which is not read yet.

    Args:
        spec: The project's.
        net: One of its nets.
        base: The folder that holds the spec.
        gpus: Those of this machine.

    Raises:
        UsageError: The net cannot fit into the memory of a GPU, or without GPUs of this machine.
    """
    if not _sizes_of(net, spec.model.arguments):
        return
    if _BYTES * _most_weights(spec, net) < (_SMALL_GPU if gpus else usable_memory() / spec.train.ranks):
        return
    memory = gpu_memory() if gpus else usable_memory()
    if memory is not None:
        _build_and_compare(spec, net, base, "cuda" if gpus else "cpu", memory)


def _sizes_of(net: str, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return the whole numbers among a ready net's arguments that size its layers; empty for what has no layers."""
    return whole_numbers(net, arguments) if row_of(net).by_descent else {}


def _most_weights(spec: Spec, net: str) -> int:
    """Return an upper bound of the weights of a net of the catalogue for the least data that there can be."""
    numbers, image = whole_numbers(net, spec.model.arguments), spec.data.image
    layers, widest, head = max(1, numbers.get("layers", 1)), max(numbers.values()), 0
    if "stages" in numbers:
        widest = numbers["width"] << max(0, numbers["stages"] - 1)
        height, width = (image.height, image.width) if image else (1, 1)
        halved = max(0, min(numbers["stages"], min(height, width).bit_length() - 1))
        head = widest * (height >> halved) * (width >> halved) * numbers.get("hidden", 0)
    return _WEIGHTS_OF_LAYER * widest**2 * layers + head


def batch_may_exceed(job: TrainingJob, memory: float) -> bool:
    """Return whether the activations of a step may need more than `memory` bytes of a CPU.

    It is an upper bound. False where the planner cannot say: a net of the user's, frozen layers, ranks that share
    weights, compiled code, and `batch: auto`, which is measured.
    """
    from models.data.preparation import Preparation  # NumPy: a run with nothing to do needs none
    from models.nets.sizes import Sizes

    train, preparation = job.train, Preparation.load(job.prepared)
    net, is_frozen = job.model.net, train.start is not None and bool(train.start.freeze)
    numbers = _sizes_of(net, job.model.arguments)
    if not numbers or train.parallel != "ddp" or train.compile is True or is_frozen:
        return False
    sizes, batch = Sizes.of(preparation, job.model.net), examples_of_step(job, preparation)
    members = numbers.get("members", 1)
    positions = sum(math.prod(shape) for shape in sizes.inputs.values())
    width = (numbers.get("width") or numbers["hidden"]) * members
    heads, layers = numbers.get("heads", 0), max(1, numbers.get("layers", 1))
    of_example = layers * positions * (_OF_POSITION * width + _OF_PAIR * heads * positions)
    of_example += _OF_OUTPUT * members * math.prod(sizes.output)
    return _NUMBER * of_example * batch / (train.accumulate * train.ranks) > memory


def examples_of_step(job: TrainingJob, preparation: Preparation) -> int:
    """Return the examples of a step over all ranks, at most those of the job's fold, recent rows and sample."""
    batch, rows, share = job.train.batch, preparation.rows, job.sample
    if "train" not in rows:
        return batch
    num = fitted_rows(job.train.rows, rows["train"])
    if job.fold is not None:
        (index, num_folds), num = job.fold, num + rows.get("validation", 0)
        share *= (index + 1) / (num_folds + 1) if job.rolls(preparation.kind) else 1 - 1 / num_folds
    if job.train.recent is not None:
        share *= job.train.recent.share + job.train.recent.replay * (1 - job.train.recent.share)
    return min(batch, max(1, round(num * share)))


def gpu_memory() -> float | None:
    """Return the bytes of the largest GPU, as `nvidia-smi` says; None without it. CUDA is not started for it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        completed = subprocess.run(command, capture_output=True, timeout=20, check=True, text=True)
        return max(float(line) for line in completed.stdout.split()) * 2**20
    return None


_LEAST_TASKS: PerDataKind[Task] = {
    "table": "binary",
    "image": "binary",
    "series": "regression",
    "text": "language",
}
_LEAST_OUTPUTS: PerDataKind[int] = {"table": 1, "image": 1, "series": 1, "text": 2}


def least_sizes(spec: Spec) -> Sizes:
    """Return the sizes of the least data that there can be for a spec, for which a net has the fewest weights."""
    from models.nets.sizes import Sizes

    kind, image, window = spec.data.kind, spec.data.image, spec.data.window
    return Sizes(
        kind=kind,
        task=_LEAST_TASKS[kind],
        num_numeric=1,
        image=(image.channels, image.height, image.width) if image else (0, 0, 0),
        window=(window.length, 1) if window else (0, 0),
        length=_LENGTH,
        num_outputs=_LEAST_OUTPUTS[kind],
    )


def _build_and_compare(spec: Spec, net: str, base: Path, device: str, memory: float) -> None:
    import torch

    from models.distributed.parallel import builds_in_shards
    from models.distributed.world import World
    from models.nets.build import draft_net
    from models.training.memory_check import refuse_what_cannot_fit

    try:
        drafted = draft_net(spec.model.model_copy(update={"net": net}), least_sizes(spec), base)
    except UsageError:
        return  # arguments that do not fit together; the build for the true data says which
    except RuntimeError as error:  # torch counts bytes in 64 bits, on the meta device too
        too_large = f"model.arguments: {net} is too large for any machine ({error}): take a smaller net"
        raise UsageError(too_large) from error
    world = World(0, spec.train.ranks, torch.device(device)).under(spec.train)
    try:
        refuse_what_cannot_fit(drafted.net, spec.train, world, builds_in_shards(world), memory)
    except TrainingError as error:
        raise UsageError(str(error)) from error
