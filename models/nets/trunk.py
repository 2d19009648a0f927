"""The trunk of a net, all but its last layer: the part that pretraining without labels trains."""

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
    """A net with a method for its features, the input of its last layer."""

    def features(self, *ordered: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        """(batch, width) from what `forward` takes; its last layer makes the output of it."""
        ...


def features_of(net: nn.Module, name: str) -> Features:
    """The trunk of a net as a function of the engine's named inputs, through an adapter where one is round it.

    Raises:
        UsageError: The net has none.
    """
    inner = net.net if isinstance(net, NetAdapter) else net
    if not isinstance(inner, Trunk):
        raise UsageError(
            f"train.pretrain: {name} has no method `features(**inputs) -> (batch, width)`: give it one (all layers but "
            "the last), or take mlp, cnn or transformer"
        )
    if not isinstance(net, NetAdapter):
        return inner.features
    adapter: NetAdapter = net

    def features(**inputs: torch.Tensor) -> torch.Tensor:
        ordered, named = adapter.feed(inputs)
        return inner.features(*ordered, **named)

    return features
