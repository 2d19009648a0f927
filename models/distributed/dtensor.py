"""DTensors: the norm of gradients that are sharded over ranks, and the groups of an optimiser."""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from models.distributed.mesh import Mesh
from models.project_spec.blocks import Train


def is_spread(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is a DTensor, of which this rank holds a part or a copy."""
    return hasattr(tensor, "device_mesh")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, which shares its memory."""
    return tensor.to_local() if is_spread(tensor) else tensor  # type: ignore[attr-defined]


def total_norm(tensors: Iterable[torch.Tensor], mesh: Mesh) -> torch.Tensor:
    """Return the joint 2-norm of tensors over all ranks; each element counts once. Every rank must call it.

    Args:
        tensors: Plain tensors are the same on all ranks of a pipeline stage.
        mesh: The ranks; their pipeline stages hold different parameters.
    """
    groups: dict[Any, list[torch.Tensor]] = defaultdict(list)
    for tensor in tensors:
        spread = is_spread(tensor)
        key = (tensor.device_mesh, tensor.placements) if spread else None  # type: ignore[attr-defined]
        groups[key].append(local(tensor))
    if set(groups) <= {None} and not mesh.has("pipeline"):
        return _norm(groups[None])
    return _joined(groups, mesh)


def _joined(groups: dict[Any, list[torch.Tensor]], mesh: Mesh) -> torch.Tensor:
    squares = []
    device = torch.device(mesh.whole.device_type) if mesh.whole else None
    for key, tensors in groups.items():
        square = _norm(tensors).double().square()
        if key is not None:
            device_mesh, placements = key
            for dimension, placement in enumerate(placements):
                # is_shard() is false for parts that two plans have split.
                if not placement.is_replicate():
                    torch.distributed.all_reduce(square, group=device_mesh.get_group(dimension))
        squares.append(square)
    whole = torch.stack(squares).sum() if squares else torch.zeros((), dtype=torch.float64, device=device)
    if mesh.has("pipeline"):
        torch.distributed.all_reduce(whole, group=mesh.group("pipeline"))
    return whole.sqrt().float()


def _norm(tensors: list[torch.Tensor]) -> torch.Tensor:
    if not tensors:
        return torch.zeros(())
    norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
    return norm


def spread_optimiser(optimiser: torch.optim.Optimizer, train: Train, mesh: Mesh) -> torch.optim.Optimizer:
    """Adapt the optimiser to DTensor parameters, and shard its state if the spec says so.

    The fast forms need lists of tensors that are all plain, or all on one mesh, so groups are split accordingly.
    """
    groups: list[dict[str, Any]] = []
    for group in optimiser.param_groups:
        kinds: dict[Any, list[nn.Parameter]] = defaultdict(list)
        for parameter in group["params"]:
            kinds[parameter.device_mesh if is_spread(parameter) else None].append(parameter)
        for mesh_of, parameters in kinds.items():
            flags = {} if mesh_of is None or group.get("fused") is None else _spread_flags(optimiser)
            groups.append({**group, "params": parameters, **flags})
    optimiser.param_groups = groups
    if not train.shard_optimiser or mesh.whole is None:
        return optimiser
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # for an unused part of the package
        from torch.distributed.optim import ZeroRedundancyOptimizer

    taken = inspect.signature(type(optimiser)).parameters
    defaults = {name: value for name, value in optimiser.defaults.items() if name in taken}
    return ZeroRedundancyOptimizer(groups, type(optimiser), **defaults)


def _spread_flags(optimiser: torch.optim.Optimizer) -> dict[str, bool]:
    """Return the flags of the fast form for DTensors: torch's only fused optimiser for them is Adam."""
    fused = isinstance(optimiser, torch.optim.Adam)
    return {"fused": fused, "foreach": not fused}
