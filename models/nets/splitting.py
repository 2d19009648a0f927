"""Optional methods by which a net describes its parts, so that ranks can share it and pretraining can use its trunk.

A net without blocks and tensor plan trains whole on every rank (ddp), or sharded as one unit (fsdp, hsdp).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import nn

from models.errors import UsageError
from models.nets.adapters import NetAdapter

# How ranks split a linear layer. column: each rank computes some of the outputs, which stay separate; row: each rank
# takes some of the inputs, and the results are summed; gathered: like column, with the outputs gathered again.
Style = Literal["column", "row", "gathered"]
Features = Callable[..., torch.Tensor]


@runtime_checkable
class BlockStack(Protocol):
    """A net that is a stack of blocks: `forward(**inputs) == leave(block_n(... block_1(enter(**inputs))))`.

    The blocks are the units of sharding, recomputation and pipeline stages. A parameter outside the blocks is used by
    `enter` or by `leave`, never by both.
    """

    def blocks(self) -> nn.ModuleList:
        """Return the blocks in order, each registered in the net; each maps one tensor to a tensor of the same shape.

        `forward` calls each of them as a module.
        """
        ...

    def enter(self, *ordered: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        """Return the input of the first block, (batch, ...), from the inputs of `forward`."""
        ...

    def leave(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the net's output from the output of the last block."""
        ...


@runtime_checkable
class TensorParallelNet(Protocol):
    """A net whose linear layers several ranks can share.

    Between a column layer and the next row layer, each rank has only its own part of the last dimension. So `forward`
    must read widths from the tensors, not from the arguments of the constructor.
    """

    def tensor_plan(self) -> dict[str, Style]:
        """Return the split of each shared `nn.Linear` by its module path in the net. Other layers stay whole."""
        ...

    def tensor_parts(self) -> int:
        """Return the number that the number of ranks must divide: attention heads, or a width."""
        ...


@runtime_checkable
class Trunk(Protocol):
    """A net with a method that returns its features before the last layer."""

    def features(self, *ordered: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        """Return (batch, width) from the inputs of `forward`; the last layer computes the output from it."""
        ...


@dataclass(frozen=True)
class BlockStackView:
    """The three methods of a net of blocks, called through its adapter if it has one."""

    blocks: nn.ModuleList
    enter: Callable[..., torch.Tensor]
    leave: Callable[[torch.Tensor], torch.Tensor]

    @classmethod
    def of(cls, net: nn.Module) -> BlockStackView | None:
        """Return the view of a net; None if the net does not define blocks."""
        inner = net.net if isinstance(net, NetAdapter) else net
        if not isinstance(inner, BlockStack):
            return None
        enter = net.through(inner.enter) if isinstance(net, NetAdapter) else inner.enter
        return cls(inner.blocks(), enter, inner.leave)


def tensor_plan(net: nn.Module) -> tuple[dict[str, Style], int] | None:
    """Return the split of a net's layers, and the number that the ranks must divide; None if the net defines none."""
    inner = net.net if isinstance(net, NetAdapter) else net
    if not isinstance(inner, TensorParallelNet):
        return None
    prefix = "net." if isinstance(net, NetAdapter) else ""
    return {f"{prefix}{path}": style for path, style in inner.tensor_plan().items()}, inner.tensor_parts()


def features_of(net: nn.Module, name: str) -> Features:
    """Return the trunk of a net as a function of the engine's named inputs, through its adapter if it has one.

    Raises:
        UsageError: The net has no trunk.
    """
    inner = net.net if isinstance(net, NetAdapter) else net
    if not isinstance(inner, Trunk):
        raise UsageError(
            f"train.pretrain: {name} has no method `features(**inputs) -> (batch, width)`: give it one (all layers but "
            "the last), or take mlp, tabm, cnn or transformer"
        )
    return net.through(inner.features) if isinstance(net, NetAdapter) else inner.features
