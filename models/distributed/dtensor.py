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
    """True for a DTensor, of which this rank holds a part or a copy."""
    return hasattr(tensor, "device_mesh")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this rank holds, sharing its memory."""
    return tensor.to_local() if is_spread(tensor) else tensor  # type: ignore[attr-defined]


def total_norm(tensors: Iterable[torch.Tensor], mesh: Mesh) -> torch.Tensor:
    """The joint 2-norm of tensors, wherever their parts are: each element counts once. Every rank must call it.

    Args:
        tensors: Plain tensors are the same on every rank but those of other pipeline stages.
        mesh: The ranks; its pipeline stages hold different parameters.
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
                # Parts that two plans have cut say no to is_shard().
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
    """The same optimiser for parameters that are spread, its state sharded where the spec asks for it.

    The fast forms take lists of tensors that must all be plain, or all be on one mesh: groups are divided by that.
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
        warnings.simplefilter("ignore", DeprecationWarning)  # of a part of the package that is not used
        from torch.distributed.optim import ZeroRedundancyOptimizer

    taken = inspect.signature(type(optimiser)).parameters
    defaults = {name: value for name, value in optimiser.defaults.items() if name in taken}
    return ZeroRedundancyOptimizer(groups, type(optimiser), **defaults)


def _spread_flags(optimiser: torch.optim.Optimizer) -> dict[str, bool]:
    """The fast form for DTensors: torch has fused Adam for them, but no other fused optimiser."""
    fused = isinstance(optimiser, torch.optim.Adam)
    return {"fused": fused, "foreach": not fused}
