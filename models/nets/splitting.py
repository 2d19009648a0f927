"""Optional methods of a net that let ranks share it.

A net without these methods trains whole on every rank (ddp) or sharded as one unit (fsdp, hsdp).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import nn

from models.nets.adapters import NetAdapter

# Of a linear layer. column: each rank holds some of the outputs, which stay apart; row: each holds some of the inputs,
# and the sums are joined; gathered: as column, with the outputs joined again.
Style = Literal["column", "row", "gathered"]


@runtime_checkable
class BlockStack(Protocol):
    """A net that is a stack of blocks: `forward(**inputs) == leave(block_n(... block_1(enter(**inputs))))`.

    The blocks are the units of sharding, of recomputing and of cutting into pipeline stages. A parameter outside them
    is used by `enter` or by `leave`, never by both.
    """

    def blocks(self) -> nn.ModuleList:
        """The blocks in order, each registered in the net; each takes and gives one tensor of one and the same shape.

        `forward` calls every one of them as a module.
        """
        ...

    def enter(self, *ordered: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        """The input of the first block, (batch, ...), from the arguments of `forward`."""
        ...

    def leave(self, hidden: torch.Tensor) -> torch.Tensor:
        """The net's output from what the last block gives."""
        ...


@runtime_checkable
class TensorParallelNet(Protocol):
    """A net whose linear layers several ranks can share.

    Between a column layer and the row layer after it every rank sees only its own part of the last dimension, so a
    forward must take widths from the tensors, not from the arguments it was built with.
    """

    def tensor_plan(self) -> dict[str, Style]:
        """How each shared `nn.Linear` is cut, by its module path in the net. What is not named stays whole."""
        ...

    def tensor_parts(self) -> int:
        """The number that the count of ranks sharing a layer must divide: heads of attention, or a width."""
        ...


@dataclass(frozen=True)
class BlockStackView:
    """The three statements of a stacked net, seen through an adapter where one is wrapped round it."""

    blocks: nn.ModuleList
    enter: Callable[..., torch.Tensor]
    leave: Callable[[torch.Tensor], torch.Tensor]

    @classmethod
    def of(cls, net: nn.Module) -> BlockStackView | None:
        """The block stack of a net; None if the net has no such methods."""
        inner = net.net if isinstance(net, NetAdapter) else net
        if not isinstance(inner, BlockStack):
            return None
        if not isinstance(net, NetAdapter):
            return cls(inner.blocks(), inner.enter, inner.leave)
        adapter: NetAdapter = net

        def enter(**inputs: torch.Tensor) -> torch.Tensor:
            ordered, named = adapter.feed(inputs)
            return inner.enter(*ordered, **named)

        return cls(inner.blocks(), enter, inner.leave)


def tensor_plan(net: nn.Module) -> tuple[dict[str, Style], int] | None:
    """How a net's layers are shared, and what the ranks must divide; None when it does not say."""
    inner = net.net if isinstance(net, NetAdapter) else net
    if not isinstance(inner, TensorParallelNet):
        return None
    prefix = "net." if isinstance(net, NetAdapter) else ""
    return {f"{prefix}{path}": style for path, style in inner.tensor_plan().items()}, inner.tensor_parts()
