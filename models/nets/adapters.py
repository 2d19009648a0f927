"""Own nets with a forward of their own shape, fitted to the named tensors that the engine feeds."""

from __future__ import annotations

import inspect

import torch
import torch.nn.functional as F
from torch import nn

from models.errors import UserCodeError
from models.nets.sizes import Sizes

Arguments = tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]


class NetAdapter(nn.Module):
    """Stands round an own net and feeds it."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def feed(self, inputs: dict[str, torch.Tensor]) -> Arguments:
        """What the net is called with, in order and by name, for the engine's named inputs."""
        raise NotImplementedError

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """(batch, num_outputs) from the inputs of the net's kind."""
        ordered, named = self.feed(inputs)
        output: torch.Tensor = self.net(*ordered, **named)
        return output


class NamedInputs(NetAdapter):
    """Passes on those of the named inputs that the net's forward asks for."""

    def __init__(self, net: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__(net)
        self.names = names

    def feed(self, inputs: dict[str, torch.Tensor]) -> Arguments:
        """Those asked for, by name."""
        return (), {name: inputs[name] for name in self.names}


class SingleInput(NetAdapter):
    """Feeds the one tensor of an image, a series or a text as the first argument."""

    def feed(self, inputs: dict[str, torch.Tensor]) -> Arguments:
        """The only input."""
        (only,) = inputs.values()
        return (only,), {}


class OneHotInput(NetAdapter):
    """Feeds a table as one float tensor (batch, num_numeric + sum of cardinalities): numbers, then one-hot columns."""

    def __init__(self, net: nn.Module, cardinalities: tuple[int, ...]) -> None:
        super().__init__(net)
        self.cardinalities = cardinalities

    def feed(self, inputs: dict[str, torch.Tensor]) -> Arguments:
        """The joined columns."""
        numeric, categorical = inputs["numeric"], inputs["categorical"]
        hot = [F.one_hot(categorical[:, i], n) for i, n in enumerate(self.cardinalities)]
        return (torch.cat([numeric, *(column.to(numeric.dtype) for column in hot)], dim=1),), {}


def adapt(net: nn.Module, sizes: Sizes, name: str) -> nn.Module:
    """`net`, wrapped where its forward does not take the engine's named tensors as they are.

    Raises:
        UserCodeError: Its forward takes neither those names nor a single tensor.
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
