"""The trunk of a net: all layers except the last; pretraining trains it without labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from models.errors import UsageError
from models.nets.adapters import NetAdapter

Features = Callable[..., torch.Tensor]


@runtime_checkable
class Trunk(Protocol):
    """A net with a method that returns its features before the last layer."""

    def features(self, *ordered: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        """Return (batch, width) from the inputs of `forward`; the last layer computes the output from it."""
        ...


def features_of(net: nn.Module, name: str) -> Features:
    """Return the trunk of a net as a function of the engine's named inputs, through its adapter if it has one.

    Raises:
        UsageError: The net has no trunk.
    """
    inner = net.net if isinstance(net, NetAdapter) else net
    if not isinstance(inner, Trunk):
        raise UsageError(
            f"train.pretrain: {name} has no method `features(**inputs) -> (batch, width)`: give it one (all layers but "
            "the last), or take mlp, cnn or transformer"
        )
    return net.through(inner.features) if isinstance(net, NetAdapter) else inner.features
