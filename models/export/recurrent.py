"""Recurrent cells, each as one operator while a net is traced.

torch.export traces a GRU or LSTM step by step although the graph ends up with one node: measured, 12 s of CPU for
48 steps and 79 s for 336. These operators have the same arguments and results, and compute shapes without the steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_OTHERS = (
    "Tensor[] weights, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
)


@torch.library.custom_op(
    "loopline::gru", mutates_args=(), schema=f"(Tensor series, Tensor state, {_OTHERS}) -> (Tensor, Tensor)"
)
def _gru(series: torch.Tensor, state: torch.Tensor, weights: list[torch.Tensor], *settings: Any) -> Any:
    return torch.gru(series, state, weights, *settings)


@torch.library.custom_op(
    "loopline::lstm",
    mutates_args=(),
    schema=f"(Tensor series, Tensor[] state, {_OTHERS}) -> (Tensor, Tensor, Tensor)",
)
def _lstm(series: torch.Tensor, state: list[torch.Tensor], weights: list[torch.Tensor], *settings: Any) -> Any:
    return torch.lstm(series, state, weights, *settings)


@_gru.register_fake
def _(series: torch.Tensor, state: torch.Tensor, weights: list[torch.Tensor], *settings: Any) -> Any:
    return _states(series, state, settings), torch.empty_like(state)


@_lstm.register_fake
def _(series: torch.Tensor, state: list[torch.Tensor], weights: list[torch.Tensor], *settings: Any) -> Any:
    return _states(series, state[0], settings), torch.empty_like(state[0]), torch.empty_like(state[1])


def _states(series: torch.Tensor, state: torch.Tensor, settings: tuple[Any, ...]) -> torch.Tensor:
    """Return an empty tensor for the last layer's states: (batch, time, directions * hidden), or time first."""
    *_, bidirectional, _batch_first = settings
    return series.new_empty(*series.shape[:2], state.shape[2] * (2 if bidirectional else 1))


def with_whole_cells(net: nn.Module) -> nn.Module:
    """Return a copy of `net` in which every `nn.GRU` and `nn.LSTM` is one operator; `net` itself when it has none."""
    if not any(_is_fit(module) for module in net.modules()):
        return net
    if _is_fit(net):
        return _FusedRecurrent(net)
    net = copy.deepcopy(net)
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if _is_fit(child):
                setattr(module, name, _FusedRecurrent(child))
    return net


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the ONNX translations of the operators: the translations of GRU and LSTM in torch's exporter."""
    from onnxscript.function_libs.torch_lib.ops import core

    return {torch.ops.loopline.gru.default: core.aten_gru, torch.ops.loopline.lstm.default: core.aten_lstm}


class _FusedRecurrent(nn.Module):
    """A GRU or LSTM as one operator, with the same inputs and outputs as the cell."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, series: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        cell = self.cell
        weights = [weight for layer in cell.all_weights for weight in layer]
        settings = (cell.bias, cell.num_layers, 0.0, False, cell.bidirectional, cell.batch_first)
        if isinstance(cell, nn.GRU):
            states, last = _gru(series, self._first(series) if state is None else state, weights, *settings)
            return states, last
        zeros = self._first(series)
        states, hidden, memory = _lstm(series, [zeros, zeros] if state is None else list(state), weights, *settings)
        return states, (hidden, memory)

    def _first(self, series: torch.Tensor) -> torch.Tensor:
        cell = self.cell
        batch = series.shape[0 if cell.batch_first else 1]
        return series.new_zeros(cell.num_layers * (2 if cell.bidirectional else 1), batch, cell.hidden_size)


def _is_fit(module: nn.Module) -> bool:
    return type(module) in (nn.GRU, nn.LSTM) and not module.proj_size
