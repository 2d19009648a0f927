"""A linear model of a table: logistic or ridge regression on the numeric inputs and one-hot categories."""

from __future__ import annotations

import torch
from torch import nn

from models.nets.sizes import Sizes


class Linear(nn.Module):
    """One weight for each numeric input and each category, and a bias; all begin at zero, since the fit is convex.

    An embedding of width `num_outputs` holds the weights of one-hot categories without making the one-hot matrix.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(sizes.num_outputs, sizes.num_numeric)) if sizes.num_numeric else None
        self.categories = nn.ModuleList(nn.Embedding(n, sizes.num_outputs) for n in sizes.cardinalities)
        for table in self.categories.parameters():
            nn.init.zeros_(table)
        self.bias = nn.Parameter(torch.zeros(sizes.num_outputs))

    def forward(self, numeric: torch.Tensor, categorical: torch.Tensor | None = None) -> torch.Tensor:
        """Return (batch, num_outputs) from numeric (batch, num_numeric) and category indices (batch, columns)."""
        output = self.bias if self.weight is None else nn.functional.linear(numeric, self.weight, self.bias)
        if categorical is not None:
            for column, table in enumerate(self.categories):
                output = output + table(categorical[:, column])
        return output

    def penalty(self) -> torch.Tensor:
        """Return the sum of squared weights, a scalar; the bias is free."""
        weights = [parameter for parameter in self.parameters() if parameter is not self.bias]
        return torch.stack([weight.square().sum() for weight in weights]).sum()


def build(sizes: Sizes, l2: float = 1.0, iterations: int = 100) -> nn.Module:
    """Build a linear model; `l2` and `iterations` are for the fit in `models/training/linear.py`."""
    del l2, iterations
    return Linear(sizes)
