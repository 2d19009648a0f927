"""Exponential moving average (EMA) of the weights, evaluated and exported instead of the last weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from models.distributed.dtensor import local
from models.training.checkpoints.state import plain_name


class Ema:
    """The moving average of a net's trained parameters and statistics: `decay` of the old, `1 - decay` of the new.

    In early steps the decay is (1 + step) / (10 + step), so that the first weights soon lose influence. It works in
    place and also on shards: every rank has the average of its own part.

    Source: Polyak and Juditsky 1992; the rise of the decay as in TensorFlow's ExponentialMovingAverage.
    """

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.decay = decay
        named = [(name, parameter) for name, parameter in net.named_parameters() if parameter.requires_grad]
        statistics = [(name, buffer) for name, buffer in net.named_buffers() if buffer.is_floating_point()]
        self._names = [[plain_name(name) for name, _ in part] for part in (named, statistics)]
        whole = [[tensor.detach() for _, tensor in part] for part in (named, statistics)]
        self._averages = [[tensor.clone() for tensor in part] for part in whole]
        # Computes on this rank's local part: DTensor has no rule for many of torch's list functions.
        self._live = [[local(tensor) for tensor in part] for part in whole]
        self._mean = [[local(tensor) for tensor in part] for part in self._averages]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average with the weights after optimiser step `step`, from 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for mean, live in zip(self._mean, self._live, strict=True):
            if mean:
                torch._foreach_lerp_(mean, live, 1 - decay)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Give the net the averaged weights inside `with`, then its own weights with the same bits."""
        live = [[tensor.clone() for tensor in part] for part in self._live]
        self._put(self._mean)
        try:
            yield
        finally:
            self._put(live)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the live average by name; loading a checkpoint fills these tensors in place."""
        return {
            name: tensor
            for names, part in zip(self._names, self._averages, strict=True)
            for name, tensor in zip(names, part, strict=True)
        }

    def load_state_dict(self, state_dict: dict[str, torch.Tensor]) -> None:
        """Do nothing: a checkpoint fills the tensors of `state_dict` in place."""

    @torch.no_grad()
    def _put(self, tensors: list[list[torch.Tensor]]) -> None:
        for live, tensor in zip(self._live, tensors, strict=True):
            if live:
                torch._foreach_copy_(live, tensor)
