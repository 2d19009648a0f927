"""TabM for tables: an ensemble of MLPs that share their weights, so that it costs little more than one of them."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import nn

from models.errors import UsageError
from models.nets.periodic import MOST_COLUMNS
from models.nets.sizes import Sizes
from models.nets.table_columns import TableColumns, is_periodic


class SharedLinear(nn.Module):
    """A linear layer of several members: all have the same weights, and each scales inputs and outputs by its own.

    Source: Wen et al. 2020, BatchEnsemble (arXiv 2002.06715).

    Args:
        inputs: Width of the input.
        outputs: Width of the output.
        members: Members of the ensemble.
        is_first: The first layer, whose scales are random, so that the members differ. If the input is wide, its
            outputs alone are scaled: the product is then computed once for all members.
    """

    def __init__(self, inputs: int, outputs: int, members: int, is_first: bool) -> None:
        super().__init__()
        is_wide = is_first and inputs > MOST_COLUMNS
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.before = None if is_wide else nn.Parameter(torch.ones(members, inputs))
        self.after = nn.Parameter(torch.ones(members, outputs))
        self.bias = nn.Parameter(torch.empty(members, outputs))
        bound = 1 / math.sqrt(inputs)
        nn.init.uniform_(self.bias, -bound, bound)
        if is_first:
            nn.init.normal_(self.after if self.before is None else self.before)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return (batch, members, outputs) from (batch, members or 1, inputs)."""
        scaled = hidden if self.before is None else hidden * self.before
        output: torch.Tensor = self.linear(scaled) * self.after + self.bias
        return output


class TabM(TableColumns):
    """Each member learns by a loss of its own; the prediction is the mean over the members.

    Source: Gorishniy, Kotelnikov and Babenko 2025, TabM (arXiv 2410.24210), with periodic embeddings of RealMLP.
    """

    def __init__(self, sizes: Sizes, hidden: int, layers: int, dropout: float, members: int, periodic: bool) -> None:
        super().__init__(sizes, periodic)
        self.trunk = nn.Sequential()
        for before in [self.width, *[hidden] * (layers - 1)]:
            is_first = not len(self.trunk)
            self.trunk.extend([SharedLinear(before, hidden, members, is_first), nn.ReLU(), nn.Dropout(dropout)])
        self.weight = nn.Parameter(torch.empty(members, hidden, sizes.num_outputs))
        self.bias = nn.Parameter(torch.empty(members, sizes.num_outputs))
        bound = 1 / math.sqrt(hidden)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, numeric: torch.Tensor, categorical: torch.Tensor | None = None) -> torch.Tensor:
        """Return (batch, members, num_outputs) in training, else the mean over the members, (batch, num_outputs)."""
        hidden = self._hidden(numeric, categorical)
        output = torch.einsum("bmh,mho->bmo", hidden, self.weight) + self.bias
        return output if self.training else output.mean(dim=1)

    def features(self, numeric: torch.Tensor, categorical: torch.Tensor | None = None) -> torch.Tensor:
        """Return (batch, members * hidden), the output of all members' last hidden layer."""
        return self._hidden(numeric, categorical).flatten(1)

    def _hidden(self, numeric: torch.Tensor, categorical: torch.Tensor | None) -> torch.Tensor:
        hidden: torch.Tensor = self.trunk(self.columns(numeric, categorical).unsqueeze(1))
        return hidden


def build(
    sizes: Sizes,
    hidden: int = 128,
    layers: int = 2,
    dropout: float = 0.1,
    members: int = 8,
    numeric_embedding: Literal["none", "periodic"] = "periodic",
) -> nn.Module:
    """Build `members` MLPs with shared weights, of `layers` blocks of `hidden` units.

    Raises:
        UsageError: An argument is below 1, or `numeric_embedding` has an unknown value.
    """
    for name, value in {"hidden": hidden, "layers": layers, "members": members}.items():
        if value < 1:
            raise UsageError(f"model.arguments.{name}: got {value}, expected 1 or more")
    return TabM(sizes, hidden, layers, dropout, members, is_periodic(numeric_embedding))
