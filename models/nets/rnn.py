"""Recurrent nets: GRU and LSTM. For a series the last hidden state predicts, for a text every hidden state."""

from __future__ import annotations

import torch
from torch import nn

from models.nets.sizes import Sizes


class RecurrentNet(nn.Module):
    """A recurrent net for series: a linear head reads the state after the last step."""

    def __init__(self, cell: nn.GRU | nn.LSTM, dropout: float, num_outputs: int) -> None:
        super().__init__()
        self.cell = cell
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(cell.hidden_size, num_outputs)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """Return (batch, num_outputs) from series (batch, time, feature)."""
        states, _ = self.cell(series)
        output: torch.Tensor = self.head(self.dropout(states[:, -1]))
        return output


class RecurrentText(nn.Module):
    """A recurrent net for text: a linear head reads the state after each embedded character."""

    def __init__(self, cell: nn.GRU | nn.LSTM, dropout: float, num_outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_outputs, cell.input_size)
        self.cell = cell
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(cell.hidden_size, num_outputs)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return (batch, position, num_outputs) from tokens, int64 (batch, position)."""
        states, _ = self.cell(self.embedding(tokens))
        output: torch.Tensor = self.head(self.dropout(states))
        return output


def build_gru(sizes: Sizes, hidden: int = 64, layers: int = 1, dropout: float = 0.1) -> nn.Module:
    """Build a GRU of `layers` layers of `hidden` units."""
    return _build(nn.GRU, sizes, hidden, layers, dropout)


def build_lstm(sizes: Sizes, hidden: int = 64, layers: int = 1, dropout: float = 0.1) -> nn.Module:
    """Build an LSTM of `layers` layers of `hidden` units."""
    return _build(nn.LSTM, sizes, hidden, layers, dropout)


def _build(cell: type[nn.GRU | nn.LSTM], sizes: Sizes, hidden: int, layers: int, dropout: float) -> nn.Module:
    # The input of the cell: the features of a step, or an embedded character, which is as wide as the cell.
    kind, width = (RecurrentText, hidden) if sizes.kind == "text" else (RecurrentNet, (sizes.window or (0, 0))[1])
    between = dropout if layers > 1 else 0.0
    return kind(cell(width, hidden, layers, batch_first=True, dropout=between), dropout, sizes.num_outputs)
