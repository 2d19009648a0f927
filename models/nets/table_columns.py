"""The columns of a table as one vector: numbers as they are or with periodic embeddings, and embedded categories."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from models.errors import UsageError
from models.kinds.data_kind import PerDataKind
from models.nets.periodic import MOST_COLUMNS, PeriodicEmbedding
from models.nets.sizes import Sizes

_MOST_PERIODIC: PerDataKind[int] = {"table": MOST_COLUMNS, "image": 0, "series": 0, "text": 0}
"""Most numbers of an example that have periodic embeddings."""


class TableColumns(nn.Module):
    """The first layers of a net for tables, which inherits from it; `periodic` embeddings are for at most 500 numbers.

    Attributes:
        width: Of `columns`.
    """

    def __init__(self, sizes: Sizes, periodic: bool) -> None:
        super().__init__()
        periodic = periodic and 0 < sizes.num_numeric <= _MOST_PERIODIC[sizes.kind]
        self.periodic = PeriodicEmbedding(sizes.num_numeric) if periodic else None
        dims = [embedding_dim(n) for n in sizes.cardinalities]
        self.embeddings = nn.ModuleList(nn.Embedding(n, dim) for n, dim in zip(sizes.cardinalities, dims, strict=True))
        for weight in self.embeddings.parameters():
            nn.init.normal_(weight, std=0.05)
        self.width = sizes.num_numeric * (self.periodic.width if self.periodic else 1) + sum(dims)

    def columns(self, numeric: torch.Tensor, categorical: torch.Tensor | None = None) -> torch.Tensor:
        """Return (batch, width) from numeric (batch, num_numeric) and category indices (batch, columns)."""
        parts = [numeric if self.periodic is None else self.periodic(numeric)]
        if categorical is not None:
            parts += [embed(categorical[:, i]) for i, embed in enumerate(self.embeddings)]
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]


def embedding_dim(cardinality: int) -> int:
    """Return the width of a category's embedding. Source: fastai's rule, min(600, 1.6 n^0.56), here at most 50."""
    return min(50, max(2, round(1.6 * math.pow(cardinality, 0.56))))


def is_periodic(numeric_embedding: str) -> bool:
    """Return whether the argument `numeric_embedding` asks for periodic embeddings.

    Raises:
        UsageError: It has an unknown value.
    """
    return bool(chosen("numeric_embedding", numeric_embedding, {"none": False, "periodic": True}))


def chosen(argument: str, value: str, table: Mapping[str, Any]) -> Any:
    """Return the entry of an argument's value.

    Raises:
        UsageError: It has an unknown value.
    """
    if value not in table:
        raise UsageError(f"model.arguments.{argument}: got {value!r}, expected one of {', '.join(table)}")
    return table[value]
