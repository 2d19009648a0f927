"""The memory check: rejects a plan that cannot fit before memory is allocated, and names plans that would fit."""

from __future__ import annotations

import torch
from torch import nn

from models.cores import usable_memory
from models.distributed.world import World
from models.errors import TrainingError
from models.project_spec.blocks import Train
from models.project_spec.parallel_dims import ParallelDims
from models.training.optimisation.optimisers import state_ratio

_NUMBER = 4
# Weights below this share of the memory fit in any plan, with any usual number of ranks on one machine.
_TINY = 0.01
_PLANS = ("fsdp", "tp", "pp")


def refuse_what_cannot_fit(
    net: nn.Module, train: Train, world: World, in_shards: bool = False, memory: float | None = None
) -> None:
    """Compare the least memory that a plan needs with all the memory of the device.

    Counts only weights, gradients and optimiser state, or the whole net if that is larger and ranks do not build only
    their shards (`in_shards`). The net may be on the meta device. The limit is `memory` in bytes, else `memory_bytes`.

    Raises:
        TrainingError: The plan cannot fit; the message names plans that would fit.
    """
    memory = memory_bytes(world.device) if memory is None else memory
    numbers = sum(p.numel() for p in net.parameters())
    if _NUMBER * numbers < _TINY * memory:
        return
    trained = sum(p.numel() for p in net.parameters() if p.requires_grad)
    together = min(world.size, train.ranks) if world.device.type == "cpu" else 1
    learnt = _NUMBER * trained * (1 + state_ratio(train))
    largest = max(p.numel() for p in net.parameters())
    whole = together * _NUMBER * (largest if in_shards else numbers)

    def needed(layout: ParallelDims) -> float:
        parts = layout.shard * layout.tensor * layout.pipeline
        return max(whole, together * (_NUMBER * numbers + learnt) / parts)

    needs = needed(world.layout)
    if train.shard_optimiser and world.layout.plan == "ddp":
        needs -= together * learnt * (1 - 1 / world.data_size) * state_ratio(train) / (1 + state_ratio(train))
    where = "the GPU's" if world.device.type == "cuda" else "this machine's"
    if whole > memory:
        raise TrainingError(
            f"model: {numbers:,} parameters are {whole / 1e9:,.3g} GB for {together} rank(s), and each makes "
            f"{'its largest layer' if in_shards else 'the whole net'} before a plan cuts it, but {where} memory is "
            f"{memory / 1e9:,.3g} GB: take a smaller net"
        )
    if needs <= memory:
        return
    sizes = {
        name: needed(
            train.model_copy(update={"parallel": name, "tensor": None, "stages": None}).parallel_dims(world.size)
        )
        for name in (_PLANS if world.size > 1 else ())
    }
    fitting = [f"train.parallel={name} ({size / 1e9:,.3g} GB)" for name, size in sizes.items() if size <= memory]
    cure = " or ".join(fitting) or "more devices with train.parallel=fsdp, an optimiser with less state, a smaller net"
    raise TrainingError(
        f"train.parallel: {world.layout.plan} over {world.size} rank(s) holds {needs / 1e9:,.3g} GB of weights, "
        f"gradients and optimiser state ({numbers:,} parameters), but {where} memory is {memory / 1e9:,.3g} GB; "
        f"what would fit: {cure}; `loopline plan PROJECT --cluster detect` weighs them all"
    )


def memory_bytes(device: torch.device) -> float:
    """Return all memory of the device in bytes: the GPU's, or the machine's with swap up to its cgroup limit."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return usable_memory()
