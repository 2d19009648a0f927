"""Recurrent nets: GRU and LSTM. For a series the last hidden state predicts, for a text every hidden state."""

from __future__ import annotations

import torch
from torch import nn

from models.nets.sizes import Sizes


class RecurrentNet(nn.Module):
    """A recurrent net with a linear head, which reads the last state of a series, and of a text every state."""

    def __init__(self, cell: nn.GRU | nn.LSTM, dropout: float, num_outputs: int, of_text: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_outputs, cell.input_size) if of_text else None
        self.cell = cell
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(cell.hidden_size, num_outputs)

    def forward(self, series: torch.Tensor | None = None, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Return (batch, num_outputs) from series (batch, time, feature).

        From tokens, int64 (batch, position), return (batch, position, num_outputs).
        """
        states, _ = self.cell(series if self.embedding is None else self.embedding(tokens))
        output: torch.Tensor = self.head(self.dropout(states[:, -1] if self.embedding is None else states))
        return output


def build_gru(sizes: Sizes, hidden: int = 64, layers: int = 1, dropout: float = 0.1) -> nn.Module:
    """Build a GRU of `layers` layers of `hidden` units."""
    return _build(nn.GRU, sizes, hidden, layers, dropout)


def build_lstm(sizes: Sizes, hidden: int = 64, layers: int = 1, dropout: float = 0.1) -> nn.Module:
    """Build an LSTM of `layers` layers of `hidden` units."""
    return _build(nn.LSTM, sizes, hidden, layers, dropout)


def _build(cell: type[nn.GRU | nn.LSTM], sizes: Sizes, hidden: int, layers: int, dropout: float) -> nn.Module:
    # The input of the cell: the features of a step, or an embedded character, which is as wide as the cell.
    of_text = sizes.kind == "text"
    width = hidden if of_text else sizes.window[1]
    core = cell(width, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
    return RecurrentNet(core, dropout, sizes.num_outputs, of_text)
