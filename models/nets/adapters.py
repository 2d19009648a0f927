"""Adapters for users' nets whose forward does not accept the engine's named tensors directly."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from models.errors import UserCodeError
from models.kinds.data_kind import PerDataKind
from models.nets.sizes import Sizes

ADAPTER_PREFIX = "net."
"""What the names of a user's parameters begin with inside a `NetAdapter`."""
Arguments = tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]


class NetAdapter(nn.Module):
    """Wraps a user's net; `feed` returns the net's positional and keyword arguments for the engine's named inputs."""

    def __init__(self, net: nn.Module, feed: Callable[[dict[str, torch.Tensor]], Arguments]) -> None:
        super().__init__()
        self.net = net
        self.feed = feed

    def through(self, method: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """Return a method of the net as a function of the engine's named inputs."""

        def call(**inputs: torch.Tensor) -> torch.Tensor:
            ordered, named = self.feed(inputs)
            return method(*ordered, **named)

        return call

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return (batch, num_outputs) from the inputs of the net's kind."""
        return self.through(self.net)(**inputs)


def named_inputs(names: tuple[str, ...], inputs: dict[str, torch.Tensor]) -> Arguments:
    """Return the inputs that the net's forward has as parameters."""
    return (), {name: inputs[name] for name in names}


def single_input(inputs: dict[str, torch.Tensor]) -> Arguments:
    """Return the one tensor of an image, a series or a text as the first argument."""
    return tuple(inputs.values()), {}


def one_hot_input(cardinalities: tuple[int, ...], inputs: dict[str, torch.Tensor]) -> Arguments:
    """Return a table as one float tensor (batch, num_numeric + sum of cardinalities): numbers, then one-hot columns."""
    numeric, categorical = inputs["numeric"], inputs["categorical"]
    hot = [F.one_hot(categorical[:, i], n) for i, n in enumerate(cardinalities)]
    return (torch.cat([numeric, *(column.to(numeric.dtype) for column in hot)], dim=1),), {}


_AS_ONE: PerDataKind[Callable[[Sizes], Callable[[dict[str, torch.Tensor]], Arguments]]] = {
    "table": lambda sizes: partial(one_hot_input, sizes.cardinalities),
    "image": lambda sizes: single_input,
    "series": lambda sizes: single_input,
    "text": lambda sizes: single_input,
}


def adapt(net: nn.Module, sizes: Sizes, name: str) -> nn.Module:
    """Return `net`, in an adapter if its forward does not accept the engine's named tensors directly.

    Raises:
        UserCodeError: Its forward accepts neither these names nor a single tensor.
    """
    inputs = tuple(sizes.inputs)
    parameters = inspect.signature(net.forward).parameters.values()
    names = {parameter.name for parameter in parameters}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters) or names >= set(inputs):
        return net
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if needed and set(needed) <= set(inputs):
        return NetAdapter(net, partial(named_inputs, tuple(key for key in inputs if key in names)))
    if len(needed) == 1:
        return NetAdapter(net, _AS_ONE[sizes.kind](sizes))
    raise UserCodeError(
        f"{name}: forward takes ({', '.join(p.name for p in parameters)}), expected {', '.join(inputs)} "
        "by name, or one tensor"
    )
