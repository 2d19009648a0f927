"""Optimisers by name, and gradient clipping."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any, TypeVar

import torch
from torch import nn

from models.nets.adapters import ADAPTER_PREFIX
from models.project_spec.blocks import Train

# Muon's orthogonal updates are for matrices between layers; embeddings are lookup tables.
_NOT_HIDDEN = (nn.Embedding,)
Group = dict[str, Any]
Optimiser = Callable[..., torch.optim.Optimizer]
T = TypeVar("T", bound=torch.optim.Optimizer)


def uncompiled(kind: type[T]) -> type[T]:
    """Return a torch optimiser without what torch wraps around it for `torch.compile`, which is never asked for here.

    The wrappers do the same steps, but their first call imports the compiler and sympy: 1.3 s of CPU.
    """
    add, step = (inspect.unwrap(method) for method in (kind.add_param_group, kind.step))
    bare: type[T] = type(kind.__name__, (kind,), {"add_param_group": add, "step": torch.no_grad()(step)})
    return bare


_FUSED: dict[str, Optimiser] = {
    "adamw": uncompiled(torch.optim.AdamW),
    "adam": uncompiled(torch.optim.Adam),
    "adagrad": uncompiled(torch.optim.Adagrad),
    "sgd": uncompiled(torch.optim.SGD),
}
_PLAIN: dict[str, Optimiser] = {
    "rmsprop": uncompiled(torch.optim.RMSprop),
    "nadam": uncompiled(torch.optim.NAdam),
    "radam": uncompiled(torch.optim.RAdam),
    "adafactor": uncompiled(torch.optim.Adafactor),
}


def make_optimiser(net: nn.Module, train: Train) -> torch.optim.Optimizer:
    """Make the spec's optimiser; weights with two or more dimensions decay, biases and norms do not.

    A frozen parameter gets no state. Each group has `share`, its factor of the learning rate (`train.start.lr_scale`).
    The fused form is used if the device has one: on a CPU it is 1.35 times as fast, measured.
    """
    groups = _groups(net, train)
    if train.optimiser == "muon":
        return Muon(groups, lr=train.lr, hidden=_hidden(net))
    if train.optimiser in _PLAIN:
        decoupled = {"decoupled_weight_decay": True} if train.optimiser in ("nadam", "radam") else {}
        return _PLAIN[train.optimiser](groups, lr=train.lr, **decoupled)
    settings = {"momentum": train.momentum, "nesterov": train.nesterov} if train.optimiser == "sgd" else {}
    return _FUSED[train.optimiser](groups, lr=train.lr, fused=is_fused(net, train.optimiser), **settings)


class Muon(torch.optim.Optimizer):
    """Muon for the matrices between layers, AdamW for all other parameters, as one optimiser with one state.

    Source: Jordan et al. 2024, with the updates scaled to AdamW's (Liu et al. 2025), so that one learning rate suits
    both.
    """

    def __init__(self, groups: list[Group], lr: float, hidden: set[nn.Parameter]) -> None:
        parted = []
        for group in groups:
            for inside, parameters in groupby(sorted(group["params"], key=hidden.__contains__), hidden.__contains__):
                parted.append({**group, "params": list(parameters), "muon": inside})
        super().__init__(parted, {"lr": lr})
        self._inner: list[tuple[bool, torch.optim.Optimizer]] = []
        for muon in (True, False):
            held = [group for group in self.param_groups if group["muon"] is muon]
            if held:
                kind: Any = torch.optim.Muon if muon else torch.optim.AdamW
                self._inner.append((muon, kind(held, **({"adjust_lr_fn": "match_rms_adamw"} if muon else {}))))

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Do one step of both inner optimisers, with this optimiser's current groups and state."""
        del closure
        for muon, part in self._inner:
            part.param_groups = [group for group in self.param_groups if group["muon"] is muon]
            part.state = self.state
            part.step()


def is_fused(net: nn.Module, optimiser: str = "adamw") -> bool:
    """Return whether the optimiser has a fused form for the device and the type of every trained parameter."""
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if optimiser not in _FUSED:
        return False
    return all(p.device.type in ("cpu", "cuda") and p.is_floating_point() and not p.is_sparse for p in trained)


def scale_of(name: str, scales: Mapping[str, float]) -> float:
    """Return the learning rate factor of the parameter `name`; the last pattern that matches decides."""
    return ([1.0] + [scale for pattern, scale in scales.items() if fits(name, pattern)])[-1]


def fits(name: str, pattern: str) -> bool:
    """Return whether `pattern` is the parameter's name, a layer that contains it, or a glob for either.

    The name in the user's own net counts too, without the prefix of the adapter around it.
    """
    names = {name, name.removeprefix(ADAPTER_PREFIX)}
    return any(fnmatchcase(name, pattern) or fnmatchcase(name, pattern + ".*") for name in names)


def clip(gradients: list[torch.Tensor], norm: torch.Tensor, limit: float) -> None:
    """Scale the gradients, whose joint 2-norm is `norm`, to a norm of at most `limit`.

    Like `torch.nn.utils.clip_grad_norm_`, with three calls in total instead of two per tensor.
    """
    torch._foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp_(max=1.0))


def _groups(net: nn.Module, train: Train) -> list[Group]:
    scales = train.start.lr_scale if train.start else {}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for decay, has_decay in ((train.weight_decay, True), (0.0, False)):
        for name, parameter in net.named_parameters():
            if parameter.requires_grad and (parameter.ndim >= 2) is has_decay:
                groups.setdefault((decay if has_decay else 0.0, scale_of(name, scales)), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "share": share} for (decay, share), parameters in groups.items()
    ]


def _hidden(net: nn.Module) -> set[nn.Parameter]:
    """Return the matrices between layers: no embeddings, and not the last matrix, which makes the output."""
    matrices = [
        parameter
        for module in net.modules()
        for parameter in module.parameters(recurse=False)
        if parameter.ndim == 2 and not isinstance(module, _NOT_HIDDEN)
    ]
    return set(matrices[:-1])


_WIDTH = 64


def state_ratio(train: Train) -> float:
    """Return bytes of optimiser state per byte of weights, from one step of the spec's optimiser on a layer."""
    layer = nn.Linear(_WIDTH, _WIDTH)
    optimiser = make_optimiser(layer, train)
    layer(torch.ones(1, _WIDTH)).sum().backward()
    optimiser.step()
    values = [
        value for state in optimiser.state.values() for value in state.values() if isinstance(value, torch.Tensor)
    ]
    weights = sum(p.numel() * p.element_size() for p in layer.parameters())
    return sum(value.numel() * value.element_size() for value in values if value.ndim) / weights
