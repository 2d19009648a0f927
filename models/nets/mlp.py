"""A multilayer perceptron, mainly for tables: embeddings, then blocks of linear, norm, activation and dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import nn

from models.kinds.data_kind import PerDataKind
from models.nets.sizes import Sizes
from models.nets.splitting import Style
from models.nets.table_columns import TableColumns, chosen, is_periodic

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


class Mlp(TableColumns):
    """An MLP; images and series are flattened and treated as numbers."""

    def __init__(
        self,
        sizes: Sizes,
        hidden: int,
        layers: int,
        dropout: float,
        norm: Callable[[int], nn.Module] | None,
        activation: Callable[[], nn.Module],
        periodic: bool,
    ) -> None:
        super().__init__(sizes, periodic)
        width = _WIDTHS[sizes.kind](self, sizes)
        blocks = [
            nn.Sequential(
                nn.Linear(before, hidden, bias=norm is None),
                *([norm(hidden)] if norm is not None else []),
                activation(),
                *([nn.Dropout(dropout)] if dropout else []),
            )
            for before in [width, *[hidden] * (layers - 1)][:layers]
        ]
        first = blocks[0] if blocks else nn.Identity()
        head = nn.Linear(hidden if layers else width, sizes.num_outputs)
        self.trunk = nn.ModuleDict({"first": first, "blocks": nn.ModuleList(blocks[1:]), "head": head})

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return (batch, num_outputs) from the inputs of the net's kind."""
        return self.leave(self.features(**inputs))

    def features(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return (batch, hidden), the output of the last block."""
        hidden = self.enter(**inputs)
        for block in self.blocks():
            hidden = block(hidden)
        return hidden

    def blocks(self) -> nn.ModuleList:
        """Return all hidden blocks except the first, whose input has another width."""
        blocks = self.trunk["blocks"]
        assert isinstance(blocks, nn.ModuleList)
        return blocks

    def enter(
        self,
        numeric: torch.Tensor | None = None,
        categorical: torch.Tensor | None = None,
        image: torch.Tensor | None = None,
        series: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return (batch, hidden), the output of the embeddings and the first block."""
        if numeric is None:
            flat = image if image is not None else series
            assert flat is not None
            flat = flat.flatten(1)
        else:
            flat = self.columns(numeric, categorical)
        hidden: torch.Tensor = self.trunk["first"](flat)
        return hidden

    def leave(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return (batch, num_outputs) from the output of the last hidden block."""
        output: torch.Tensor = self.trunk["head"](hidden)
        return output

    def tensor_plan(self) -> dict[str, Style]:
        """Split every hidden layer by its outputs, which are gathered again because norms need whole examples."""
        return {
            name: "gathered"
            for name, module in self.named_modules()
            if isinstance(module, nn.Linear) and name != "trunk.head"
        }

    def tensor_parts(self) -> int:
        """Return the hidden width."""
        head = self.trunk["head"]
        assert isinstance(head, nn.Linear)
        return head.in_features


def _flat_width(net: Mlp, sizes: Sizes) -> int:
    del net
    return math.prod(next(iter(sizes.inputs.values())))


_WIDTHS: PerDataKind[Callable[[Mlp, Sizes], int]] = {
    "table": lambda net, sizes: net.width,
    "image": _flat_width,
    "series": _flat_width,
    "text": _flat_width,
}
"""Width of the first block's input."""


def build(
    sizes: Sizes,
    hidden: int = 256,
    layers: int = 2,
    dropout: float = 0.1,
    norm: Literal["batch", "layer", "none"] = "batch",
    activation: Literal["relu", "gelu", "silu"] = "relu",
    numeric_embedding: Literal["none", "periodic"] = "none",
) -> nn.Module:
    """Build an MLP of `layers` blocks of `hidden` units; `numeric_embedding` is for a table of up to 500 numbers.

    Raises:
        UsageError: `norm`, `activation` or `numeric_embedding` has an unknown value.
    """
    norms = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "none": None}
    layer, act = chosen("norm", norm, norms), chosen("activation", activation, ACTIVATIONS)
    return Mlp(sizes, hidden, layers, dropout, layer, act, is_periodic(numeric_embedding))
