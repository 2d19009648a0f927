"""A net of one's own: a plain module, whose forward takes its inputs by name."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    """Two layers with a shortcut around them.

    Args:
        num_numeric: Number of numeric columns; Loopline fills it in.
        num_outputs: Number of outputs; Loopline fills it in.
        hidden: Width, from `model.arguments`.
    """

    def __init__(self, num_numeric: int, num_outputs: int, hidden: int = 16) -> None:
        super().__init__()
        self.deep = nn.Sequential(nn.Linear(num_numeric, hidden), nn.ReLU(), nn.Linear(hidden, num_outputs))
        self.wide = nn.Linear(num_numeric, num_outputs)

    def forward(self, numeric: torch.Tensor) -> torch.Tensor:
        """Return the logits (row, output) of standardised numbers (row, column)."""
        return self.deep(numeric) + self.wide(numeric)
