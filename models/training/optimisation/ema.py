"""Exponential moving average (EMA) of the weights, judged and exported in place of the last weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from models.distributed.dtensor import local
from models.training.checkpoints.state import plain_name


class Ema:
    """The mean of a net's trained parameters and running statistics, `decay` of the old to `1 - decay` of the new.

    Early on the decay is (1 + step) / (10 + step), so that the first weights are soon forgotten. Works in place over
    whatever the parameters are, shards included: every rank keeps the mean of what it holds.

    Source: Polyak and Juditsky 1992; the rise of the decay as in TensorFlow's ExponentialMovingAverage.
    """

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.decay = decay
        named = [(name, parameter) for name, parameter in net.named_parameters() if parameter.requires_grad]
        statistics = [(name, buffer) for name, buffer in net.named_buffers() if buffer.is_floating_point()]
        self._names = [[plain_name(name) for name, _ in part] for part in (named, statistics)]
        whole = [[tensor.detach() for _, tensor in part] for part in (named, statistics)]
        self._averages = [[tensor.clone() for tensor in part] for part in whole]
        # The arithmetic is on what this rank holds: for many of torch's list functions DTensors have no rule.
        self._live = [[local(tensor) for tensor in part] for part in whole]
        self._mean = [[local(tensor) for tensor in part] for part in self._averages]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after optimiser step `step`, from 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for mean, live in zip(self._mean, self._live, strict=True):
            if mean:
                torch._foreach_lerp_(mean, live, 1 - decay)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """The net has the mean's weights for a while, then its own again, to the bit."""
        live = [[tensor.clone() for tensor in part] for part in self._live]
        self._put(self._mean)
        try:
            yield
        finally:
            self._put(live)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The live mean by name, for a checkpoint, which fills these very tensors when it is loaded."""
        return {
            name: tensor
            for names, part in zip(self._names, self._averages, strict=True)
            for name, tensor in zip(names, part, strict=True)
        }

    def load_state_dict(self, state_dict: dict[str, torch.Tensor]) -> None:
        """Restore the averages; tensors that were filled in place are left alone."""
        for name, tensor in self.state_dict().items():
            if tensor is not state_dict[name]:
                tensor.copy_(state_dict[name])

    @torch.no_grad()
    def _put(self, tensors: list[list[torch.Tensor]]) -> None:
        for live, wanted in zip(self._live, tensors, strict=True):
            if live:
                torch._foreach_copy_(live, wanted)
