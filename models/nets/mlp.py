"""A multilayer perceptron, mainly for tables: embeddings, then blocks of linear, norm, activation and dropout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import nn

from models.errors import UsageError
from models.nets.periodic import MOST_COLUMNS, PeriodicEmbedding
from models.nets.sizes import Sizes
from models.nets.splitting import Style

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


class Mlp(nn.Module):
    """An MLP; images and series are flattened and treated as numbers."""

    def __init__(
        self,
        sizes: Sizes,
        embedding_dims: list[int],
        first: nn.Module,
        equal: list[nn.Module],
        head: nn.Linear,
        periodic: PeriodicEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.kind = sizes.kind
        self.periodic = periodic
        self.embeddings = nn.ModuleList(
            nn.Embedding(n, dim) for n, dim in zip(sizes.cardinalities, embedding_dims, strict=True)
        )
        for weight in self.embeddings.parameters():
            nn.init.normal_(weight, std=0.05)
        self.trunk = nn.ModuleDict({"first": first, "blocks": nn.ModuleList(equal), "head": head})

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
            columns = [numeric if self.periodic is None else self.periodic(numeric)]
            if categorical is not None:
                columns += [embed(categorical[:, i]) for i, embed in enumerate(self.embeddings)]
            flat = torch.cat(columns, dim=1) if len(columns) > 1 else columns[0]
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


def embedding_dim(cardinality: int) -> int:
    """Return the width of a category's embedding. Source: fastai's rule, min(600, 1.6 n^0.56), here at most 50."""
    return min(50, max(2, round(1.6 * math.pow(cardinality, 0.56))))


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
    layer, act = _chosen("norm", norm, norms), _chosen("activation", activation, ACTIVATIONS)
    dims = [embedding_dim(n) for n in sizes.cardinalities]
    is_table = sizes.kind == "table"
    embeds = {"none": False, "periodic": is_table and 0 < sizes.num_numeric <= MOST_COLUMNS}
    periodic = PeriodicEmbedding(sizes.num_numeric) if _chosen("numeric_embedding", numeric_embedding, embeds) else None
    numeric = sizes.num_numeric * (periodic.width if periodic else 1)
    width = numeric + sum(dims) if is_table else math.prod(next(iter(sizes.inputs.values())))
    blocks = [
        nn.Sequential(
            nn.Linear(before, after, bias=layer is None),
            *([layer(after)] if layer is not None else []),
            act(),
            *([nn.Dropout(dropout)] if dropout else []),
        )
        for before, after in pairwise([width, *[hidden] * layers])
    ]
    first = blocks[0] if blocks else nn.Identity()
    head = nn.Linear(hidden if layers else width, sizes.num_outputs)
    return Mlp(sizes, dims, first, list(blocks[1:]), head, periodic)


def _chosen(argument: str, value: str, table: Mapping[str, Any]) -> Any:
    if value not in table:
        raise UsageError(f"model.arguments.{argument}: got {value!r}, expected one of {', '.join(table)}")
    return table[value]
