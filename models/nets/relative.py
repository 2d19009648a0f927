"""A net for series that corrects a forecast from the window itself (`models/data/window_reference.py`)."""

from __future__ import annotations

import torch
from torch import nn

from models.nets.sizes import NetReference

_HEADS = ("head", "trunk.head")
"""The last layers of the nets of the catalogue."""


class RelativeNet(nn.Module):
    """Returns a window's reference forecast plus the correction of a net, which reads the window relative to its end.

    Args:
        net: A net for series.
        reference: The forecast.
        starts_at_zero: Set the net's last layer to zero, so that untrained it gives the reference.
    """

    weights: torch.Tensor

    def __init__(self, net: nn.Module, reference: NetReference, *, starts_at_zero: bool) -> None:
        super().__init__()
        self.net = net
        self.reference = reference
        # Not a part of the state: the weights belong to the preparation.
        self.register_buffer("weights", torch.tensor(reference.forecast.weights), persistent=False)
        for name, head in net.named_modules():
            if starts_at_zero and name in _HEADS and isinstance(head, nn.Linear):
                nn.init.zeros_(head.weight)
                nn.init.zeros_(head.bias)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """Return (batch, 1), the standardised target, from series (batch, time, feature)."""
        forecast = self.reference.forecast
        column = forecast.column
        own = series[:, :, column]
        last = own[:, -1:]
        relative = own - last
        scale = torch.ones_like(last)
        if forecast.is_scaled:
            scale = (relative.square().mean(dim=1, keepdim=True) + forecast.floor**2).sqrt()
        relative = relative / scale
        before, after = series[:, :, :column], series[:, :, column + 1 :]
        change: torch.Tensor = self.net(series=torch.cat([before, relative.unsqueeze(2), after], dim=2))
        if forecast.kind == "seasonal":
            place = own.shape[1] - 1 - (forecast.back or 0)
            change = change + relative[:, place : place + 1]
        elif forecast.kind == "linear":
            known = torch.cat([relative, before[:, -1], after[:, -1], torch.ones_like(last)], dim=1)
            change = change + (known * self.weights).sum(dim=1, keepdim=True)
        return (last + scale * change) * self.reference.factor + self.reference.shift
