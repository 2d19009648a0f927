"""Builds a net from a spec's `model` block and checks that it fits the data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from models.errors import UsageError, UserCodeError, did_you_mean
from models.kinds.data_kind import PerDataKind
from models.nets.adapters import adapt
from models.nets.catalogue import NETS, net_name
from models.nets.deferred import NetDraft, draft, with_memory
from models.nets.linear import LinearWindow
from models.nets.relative import RelativeNet
from models.nets.sizes import WHOLE_NUMBERS, Sizes
from models.project_spec.blocks import Model
from models.project_spec.references import call, resolve

_SHAPES: PerDataKind[str] = {
    "table": "batch, num_outputs",
    "image": "batch, num_outputs",
    "series": "batch, num_outputs",
    "text": "batch, position, num_outputs",
}
"""What the dimensions of a net's output are."""


def build_net(model: Model, sizes: Sizes, base: Path) -> nn.Module:
    """Build the net that the spec names, with initial weights from torch's generator, and check it by a forward pass.

    Args:
        model: Reference and arguments.
        sizes: The sizes of the data.
        base: Folder of the spec; references to the user's code start there.

    Raises:
        UsageError: The net does not exist, does not accept this kind of data, or has no such argument.
        UserCodeError: The user's code raised, returned no `nn.Module`, or a net with a wrong output shape.
    """
    net = _assembled(model, sizes, base)
    _check(net, sizes, net_name(model.net, sizes.kind))
    return net


def _assembled(model: Model, sizes: Sizes, base: Path) -> nn.Module:
    name = net_name(model.net, sizes.kind)
    factory = resolve(name, base, NETS)
    if name in NETS:
        check_arguments(name, factory, model.arguments, reserved=("sizes",))
        net = _module(name, factory(sizes, **model.arguments))
    else:
        net = adapt(_own_net(name, factory, model.arguments, sizes), sizes, name)
    is_forecast = isinstance(net, LinearWindow)
    if sizes.reference is not None and not is_forecast and (name in NETS or sizes.reference.is_chosen):
        net = RelativeNet(net, sizes.reference, starts_at_zero=name in NETS)
    return net


def _check(net: nn.Module, sizes: Sizes, name: str) -> None:
    _dry_forward(net, sizes, name)
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise UserCodeError(f"{name}: no parameter that can be trained: register layers as attributes")
    empty = [key for key, parameter in net.named_parameters() if not parameter.numel()]
    if empty and name not in NETS:
        shape = tuple(net.get_parameter(empty[0]).shape)
        raise UserCodeError(
            f"{name}: the layer {empty[0].rpartition('.')[0]!r} is empty, its weight has shape {shape}: "
            "leave it out where the data has no such inputs"
        )


def draft_net(model: Model, sizes: Sizes, base: Path) -> NetDraft:
    """Build a net without memory for its weights where that is possible; the values come with `NetDraft.fill`.

    The nets of the catalogue are built so. A net of the user's is built as it is, since its constructor may compute
    values or read files, unless its class or factory says `build_on_meta = True`.

    Raises:
        UsageError, UserCodeError: As of `build_net`, or the net says that it can be built so and cannot.
    """
    name = net_name(model.net, sizes.kind)
    is_ready = name in NETS
    if not is_ready and not getattr(resolve(name, base, NETS), "build_on_meta", False):
        return NetDraft(build_net(model, sizes, base))
    drafted = draft(partial(_assembled, model, sizes, base), is_required=not is_ready, name=name)
    _check(drafted.net, sizes, name)
    return drafted


def check_arguments(
    name: str, factory: Callable[..., Any], arguments: dict[str, Any], reserved: tuple[str, ...] = ()
) -> None:
    """Reject arguments that `factory` does not have.

    Raises:
        UsageError: An argument is unknown; the message names the nearest argument and all arguments.
    """
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = [parameter.name for parameter in parameters if parameter.name not in reserved]
    for argument in arguments:
        if argument not in names:
            cure = did_you_mean(argument, names, "remove it")
            raise UsageError(
                f"model.arguments: {name} has no argument {argument!r}, expected one of {', '.join(names)}; {cure}"
            )


def _own_net(name: str, factory: Any, arguments: dict[str, Any], sizes: Sizes) -> nn.Module:
    if not callable(factory):
        raise UserCodeError(
            f"{name}: got {type(factory).__name__}, expected a class or function that gives an nn.Module"
        )
    parameters = inspect.signature(factory).parameters
    check_arguments(name, factory, arguments)
    required = {key for key, parameter in parameters.items() if parameter.default is parameter.empty}
    values = {key: value for key, value in sizes.for_net().items() if key in required} | arguments
    missing = [
        parameter.name
        for parameter in parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and parameter.name not in values
    ]
    if missing:
        raise UsageError(
            f"{name} needs {', '.join(missing)}: give {'it' if len(missing) == 1 else 'them'} in model.arguments "
            f"(a {sizes.kind} has {', '.join(sizes.for_net())})"
        )
    return _module(name, call(factory, name, **values))


def _module(name: str, net: Any) -> nn.Module:
    """Return what a factory made; trees and estimators are no torch nets."""
    if not isinstance(net, nn.Module):
        raise UserCodeError(f"{name}: got {type(net).__name__}, expected a torch.nn.Module")
    return net


def example_inputs(sizes: Sizes, batch: int = 2) -> dict[str, torch.Tensor]:
    """Return inputs of zeros with the names and shapes of a net's forward."""
    return {
        name: torch.zeros((batch, *shape), dtype=torch.int64 if name in WHOLE_NUMBERS else torch.float32)
        for name, shape in sizes.inputs.items()
    }


def _dry_forward(net: nn.Module, sizes: Sizes, name: str) -> None:
    trial = (with_memory(net) if name in NETS else net).eval()
    with torch.no_grad(), torch.device(next((p.device for p in trial.parameters()), "cpu")):
        inputs = example_inputs(sizes)
        output = trial(**inputs) if name in NETS else call(trial, name, **inputs)
    net.train()
    expected = (2, *sizes.output)
    got = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
    if got != expected:
        shapes = ", ".join(f"{key} {tuple(value.shape)}" for key, value in inputs.items())
        raise UserCodeError(
            f"{name}: forward gave {got}, expected {expected} ({_SHAPES[sizes.kind]}) from {shapes}: "
            "let its last layer have num_outputs outputs"
        )
