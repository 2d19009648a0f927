"""Adapters for users' nets whose forward does not accept the engine's named tensors directly."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from models.errors import UserCodeError
from models.nets.sizes import Sizes

Arguments = tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]


class NetAdapter(nn.Module):
    """Wraps a user's net and converts its inputs."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def feed(self, inputs: dict[str, torch.Tensor]) -> Arguments:
        """Return the positional and the keyword arguments of the net for the engine's named inputs."""
        raise NotImplementedError

    def through(self, method: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """Return a method of the net as a function of the engine's named inputs."""

        def call(**inputs: torch.Tensor) -> torch.Tensor:
            ordered, named = self.feed(inputs)
            return method(*ordered, **named)

        return call

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return (batch, num_outputs) from the inputs of the net's kind."""
        ordered, named = self.feed(inputs)
        output: torch.Tensor = self.net(*ordered, **named)
        return output


class NamedInputs(NetAdapter):
    """Passes only the named inputs that the net's forward has as parameters."""

    def __init__(self, net: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__(net)
        self.names = names

    def feed(self, inputs: dict[str, torch.Tensor]) -> Arguments:
        """Return the inputs with these names."""
        return (), {name: inputs[name] for name in self.names}


class SingleInput(NetAdapter):
    """Feeds the one tensor of an image, a series or a text as the first argument."""

    def feed(self, inputs: dict[str, torch.Tensor]) -> Arguments:
        """Return the only input."""
        (only,) = inputs.values()
        return (only,), {}


class OneHotInput(NetAdapter):
    """Feeds a table as one float tensor (batch, num_numeric + sum of cardinalities): numbers, then one-hot columns."""

    def __init__(self, net: nn.Module, cardinalities: tuple[int, ...]) -> None:
        super().__init__(net)
        self.cardinalities = cardinalities

    def feed(self, inputs: dict[str, torch.Tensor]) -> Arguments:
        """Return the joined columns."""
        numeric, categorical = inputs["numeric"], inputs["categorical"]
        hot = [F.one_hot(categorical[:, i], n) for i, n in enumerate(self.cardinalities)]
        return (torch.cat([numeric, *(column.to(numeric.dtype) for column in hot)], dim=1),), {}


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
        return NamedInputs(net, tuple(key for key in inputs if key in names))
    if len(needed) == 1:
        return OneHotInput(net, sizes.cardinalities) if sizes.kind == "table" else SingleInput(net)
    raise UserCodeError(
        f"{name}: forward takes ({', '.join(p.name for p in parameters)}), expected {', '.join(inputs)} "
        "by name, or one tensor"
    )
