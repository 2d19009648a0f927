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
from models.nets.deferred import is_spread
from models.project_spec.blocks import Train

_ELEMENTWISE = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.Adagrad,
    torch.optim.RMSprop,
    torch.optim.NAdam,
    torch.optim.RAdam,
)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, which shares its memory."""
    return tensor.to_local() if is_spread(tensor) else tensor


def part_of(whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """Return this rank's part as a DTensor of the shape, the mesh and the placements of `whole`, without a message."""
    from torch.distributed.tensor import DTensor

    like: Any = whole
    mesh, placements = like.device_mesh, like.placements
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())


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
    return torch.nn.utils.get_total_norm(tensors, foreach=True)


def spread_optimiser(optimiser: torch.optim.Optimizer, train: Train, mesh: Mesh) -> torch.optim.Optimizer:
    """Adapt the optimiser to DTensor parameters, and shard its state if the spec says so."""
    if any(is_spread(parameter) for group in optimiser.param_groups for parameter in group["params"]):
        if isinstance(optimiser, _ELEMENTWISE):
            _LocalSteps(optimiser)
        else:
            _split_groups(optimiser)
    if not train.shard_optimiser or mesh.whole is None:
        return optimiser
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # for an unused part of the package
        from torch.distributed.optim import ZeroRedundancyOptimizer

    arguments = inspect.signature(type(optimiser)).parameters
    defaults = {name: value for name, value in optimiser.defaults.items() if name in arguments}
    return ZeroRedundancyOptimizer(optimiser.param_groups, type(optimiser), **defaults)


def _split_groups(optimiser: torch.optim.Optimizer) -> None:
    """Split the groups by mesh: lists of tensors are updated at once only if all are plain, or all on one mesh."""
    groups: list[dict[str, Any]] = []
    for group in optimiser.param_groups:
        kinds: dict[Any, list[nn.Parameter]] = defaultdict(list)
        for parameter in group["params"]:
            kinds[parameter.device_mesh if is_spread(parameter) else None].append(parameter)
        groups.extend({**group, "params": parameters} for parameters in kinds.values())
    optimiser.param_groups = groups


class _LocalSteps:
    """Has an elementwise optimiser work on this rank's parts; between steps its groups and state hold the DTensors.

    The values are the same: each element's update needs that element alone. On DTensors, torch works out at the first
    step how each list of tensors is sharded (0.1 s on one mesh, 0.25 s on two dimensions, measured), and has a fused
    form for Adam only.
    """

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self._state: defaultdict[torch.Tensor, Any] = defaultdict(dict)
        self._parts: list[list[torch.Tensor]] = []
        self._wholes: list[list[torch.Tensor]] = []
        optimiser.register_step_pre_hook(self._begin)
        optimiser.register_step_post_hook(self._end)

    @torch.no_grad()
    def _begin(self, optimiser: torch.optim.Optimizer, *_: Any) -> None:
        self._state = optimiser.state
        self._wholes = [group["params"] for group in optimiser.param_groups]
        self._parts = [[_part(parameter) for parameter in parameters] for parameters in self._wholes]
        optimiser.state = defaultdict(dict)
        for group, parts, wholes in zip(optimiser.param_groups, self._parts, self._wholes, strict=True):
            group["params"] = parts
            for part, whole in zip(parts, wholes, strict=True):
                if state := self._state.get(whole):
                    optimiser.state[part] = {key: _local_value(value) for key, value in state.items()}

    @torch.no_grad()
    def _end(self, optimiser: torch.optim.Optimizer, *_: Any) -> None:
        new, optimiser.state = optimiser.state, self._state
        for group, parts, wholes in zip(optimiser.param_groups, self._parts, self._wholes, strict=True):
            group["params"] = wholes
            for part, whole in zip(parts, wholes, strict=True):
                state = optimiser.state[whole]
                for key, value in new[part].items():
                    if _local_value(state.get(key)) is not value:
                        state[key] = _whole_value(whole, part, value)
        self._parts = []  # their gradients are released with those of the parameters


def _part(parameter: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a parameter, with this rank's part of its gradient."""
    if not is_spread(parameter):
        return parameter
    part, gradient = local(parameter), parameter.grad
    if gradient is not None:
        if gradient.placements != parameter.placements:  # type: ignore[attr-defined]
            gradient = gradient.redistribute(placements=parameter.placements)  # type: ignore[attr-defined]
        part.grad = local(gradient)
    return part


def _local_value(value: Any) -> Any:
    return local(value) if isinstance(value, torch.Tensor) else value


def _whole_value(whole: torch.Tensor, part: torch.Tensor, value: Any) -> Any:
    """Return a part's state as a part of the whole parameter's state, if it has a number for each weight."""
    is_state_of_part = is_spread(whole) and isinstance(value, torch.Tensor) and value.shape == part.shape
    return part_of(whole, value) if is_state_of_part else value
