"""Recurrent nets: GRU and LSTM. Of a series the last hidden state predicts, of a text every one."""

from __future__ import annotations

import torch
from torch import nn

from models.nets.sizes import Sizes


class RecurrentNet(nn.Module):
    """The state after the last step goes through a linear head."""

    def __init__(self, cell: nn.GRU | nn.LSTM, dropout: float, num_outputs: int) -> None:
        super().__init__()
        self.cell = cell
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(cell.hidden_size, num_outputs)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """(batch, num_outputs) from series (batch, time, feature)."""
        states, _ = self.cell(series)
        output: torch.Tensor = self.head(self.dropout(states[:, -1]))
        return output


class RecurrentText(nn.Module):
    """Embedded characters go through the cell, and the state after each through a linear head."""

    def __init__(self, cell: nn.GRU | nn.LSTM, dropout: float, num_outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_outputs, cell.input_size)
        self.cell = cell
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(cell.hidden_size, num_outputs)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, position, num_outputs) from tokens, int64 (batch, position)."""
        states, _ = self.cell(self.embedding(tokens))
        output: torch.Tensor = self.head(self.dropout(states))
        return output


def build_gru(sizes: Sizes, hidden: int = 64, layers: int = 1, dropout: float = 0.1) -> nn.Module:
    """A GRU of `layers` layers of `hidden` units."""
    inputs = _features(sizes, hidden)
    cell = nn.GRU(inputs, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
    return _around(cell, sizes, dropout)


def build_lstm(sizes: Sizes, hidden: int = 64, layers: int = 1, dropout: float = 0.1) -> nn.Module:
    """An LSTM of `layers` layers of `hidden` units."""
    inputs = _features(sizes, hidden)
    cell = nn.LSTM(inputs, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
    return _around(cell, sizes, dropout)


def _around(cell: nn.GRU | nn.LSTM, sizes: Sizes, dropout: float) -> nn.Module:
    kind = RecurrentText if sizes.kind == "text" else RecurrentNet
    return kind(cell, dropout, sizes.num_outputs)


def _features(sizes: Sizes, hidden: int) -> int:
    """Number of features of a step of a series; for a character the width of the cell."""
    return hidden if sizes.kind == "text" else (sizes.window or (0, 0))[1]
