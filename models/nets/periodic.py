"""Periodic embeddings of numeric inputs, which let an MLP follow functions that are not smooth."""

from __future__ import annotations

import math

import torch
from torch import nn

_FREQUENCIES = 16
_WIDTH = 4
_SIGMA = 0.1
MOST_COLUMNS = 500
"""With more numbers, such as the n-grams of texts, the embeddings would cost more than the net."""


class PeriodicEmbedding(nn.Module):
    """Each number x becomes itself and `width - 1` linear combinations of cos(2 pi (w x + b)) with learnt w and b.

    Source: PBLD embeddings of RealMLP, Holzmueller et al., Better by Default (arXiv 2407.04491), section 3; they follow
    Gorishniy et al., On Embeddings for Numerical Features in Tabular Deep Learning (arXiv 2203.05556).
    """

    def __init__(self, num_numeric: int) -> None:
        super().__init__()
        self.width = _WIDTH
        self.frequency = nn.Parameter(torch.randn(num_numeric, _FREQUENCIES) * _SIGMA)
        self.phase = nn.Parameter(torch.empty(num_numeric, _FREQUENCIES).uniform_(-1, 1))
        bound = 1 / math.sqrt(_FREQUENCIES)
        self.weight = nn.Parameter(torch.empty(num_numeric, _FREQUENCIES, _WIDTH - 1).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_numeric, _WIDTH - 1).uniform_(-bound, bound))

    def forward(self, numeric: torch.Tensor) -> torch.Tensor:
        """Return (batch, num_numeric * width) from (batch, num_numeric)."""
        number = numeric.unsqueeze(2)
        waves = torch.cos(2 * math.pi * (number * self.frequency + self.phase))
        mixed = torch.einsum("bfk,fkd->bfd", waves, self.weight) + self.bias
        return torch.cat([number, mixed], dim=2).flatten(1)
