"""A net for series that corrects a forecast from the window itself (`models/data/window_reference.py`)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from models.data.preparation import WindowReference
from models.nets.sizes import NetReference

_HEADS = ("head", "trunk.head")
"""The last layers of the nets of the catalogue."""


class WindowParts(NamedTuple):
    """A window beside its end, and its reference forecast, in standardised units of the inputs.

    Attributes:
        relative: The target's window less its last value, divided by `scale` (batch, time).
        last: The last value (batch, 1).
        scale: Of the window, or 1 (batch, 1).
        change: What the reference adds to the last value, divided by `scale` (batch, output), or (batch, 1) for all.
    """

    relative: torch.Tensor
    last: torch.Tensor
    scale: torch.Tensor
    change: torch.Tensor


def window_parts(
    series: torch.Tensor,
    forecast: WindowReference,
    weights: torch.Tensor,
    floor: torch.Tensor | float,
    quantiles: torch.Tensor | None = None,
) -> WindowParts:
    """Return the parts of windows.

    Args:
        series: (batch, time, feature).
        forecast: The reference forecast.
        weights: Its weights, in the type of `series` (horizon, input).
        floor: Its least scale; a float64 tensor for float64 series, for torch's exporter rounds a number to float32.
        quantiles: Of its errors, in the type of `series` (output,); those of a horizon are next to each other.
    """
    column = forecast.column
    own_series = series[:, :, column]
    last = own_series[:, -1:]
    relative = own_series - last
    scale = torch.ones_like(last)
    if forecast.is_scaled:
        # Not `+ floor**2`: torch's exporter drops an addition of a constant below 1e-8, and a flat window divides by 0.
        scale = (relative.square().mean(dim=1, keepdim=True) + (scale * floor).square()).sqrt()
    relative = relative / scale
    change = torch.zeros_like(last)
    if forecast.kind == "seasonal":
        places = [own_series.shape[1] - 1 - back for back in forecast.back]
        change = torch.cat([relative[:, place : place + 1] for place in places], dim=1)
    elif forecast.kind == "linear":
        facts = torch.cat([relative, moves_of(series, column) / scale, torch.ones_like(last)], dim=1)
        change = torch.cat([(facts * row).sum(dim=1, keepdim=True) for row in weights.unbind()], dim=1)
    if quantiles is not None and len(quantiles):
        num = len(quantiles) // change.shape[1]
        places = [index for index in range(change.shape[1]) for _ in range(num)]
        change = torch.cat([change[:, index : index + 1] for index in places], dim=1) + quantiles
    return WindowParts(relative, last, scale, change)


def moves_of(series: torch.Tensor, column: int) -> torch.Tensor:
    """Return how the columns but the target's moved, (batch, 2 x other columns), as `WindowExamples.moves`."""
    others = torch.cat([series[:, :, :column], series[:, :, column + 1 :]], dim=2)
    last, length = others[:, -1], others.shape[1]
    step = last - others[:, -min(2, length)]
    return torch.cat([step, last - others.mean(dim=1) if length > 1 else last], dim=1)


def on_log_scale(parts: WindowParts, own_series: torch.Tensor, numbers: torch.Tensor) -> WindowParts:
    """Return the parts of windows in the unit of a standardised target on the log scale, with the scale 1.

    Args:
        parts: In standardised units of the inputs.
        own_series: The target's window (batch, time).
        numbers: Offset and least value of the logarithm, then factor and shift (4,); `NetReference` describes them.
    """
    offset, lowest, factor, shift = (numbers[index] for index in range(4))
    forecast = parts.last + parts.scale * parts.change
    values = torch.cat([own_series, forecast], dim=1) + offset
    logarithms = torch.maximum(values, lowest).log() * factor + shift
    length = own_series.shape[1]
    last = logarithms[:, length - 1 : length]
    return WindowParts(logarithms[:, :length] - last, last, torch.ones_like(last), logarithms[:, length:] - last)


def weights_of(reference: NetReference, dtype: torch.dtype) -> torch.Tensor:
    """Return the weights of a linear reference (horizon, input); of another one (0,)."""
    weights = torch.tensor(reference.forecast.weights, dtype=dtype)
    return weights.view(reference.num_horizons, -1) if len(weights) else weights


class RelativeNet(nn.Module):
    """Returns a window's reference forecast plus the correction of a net, which reads the window relative to its end.

    Args:
        net: A net for series.
        reference: The forecast.
        starts_at_zero: Set the net's last layer to zero, so that untrained it gives the reference.
    """

    weights: torch.Tensor
    quantiles: torch.Tensor
    numbers: torch.Tensor

    def __init__(self, net: nn.Module, reference: NetReference, *, starts_at_zero: bool) -> None:
        super().__init__()
        self.net = net
        self.reference = reference
        # Not a part of the state: they belong to the preparation.
        self.register_buffer("weights", weights_of(reference, torch.float32), persistent=False)
        self.register_buffer("quantiles", torch.tensor(reference.forecast.quantiles), persistent=False)
        numbers = [*(reference.log or ()), reference.factor, reference.shift]
        self.register_buffer("numbers", torch.tensor(numbers), persistent=False)
        for name, head in net.named_modules():
            if starts_at_zero and name in _HEADS and isinstance(head, nn.Linear):
                nn.init.zeros_(head.weight)
                nn.init.zeros_(head.bias)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """Return (batch, output), the standardised target, from series (batch, time, feature)."""
        forecast = self.reference.forecast
        parts = window_parts(series, forecast, self.weights, forecast.floor, self.quantiles)
        is_log, column = self.reference.log is not None, forecast.column
        if is_log:
            parts = on_log_scale(parts, series[:, :, column], self.numbers)
        before, after = series[:, :, :column], series[:, :, column + 1 :]
        change: torch.Tensor = self.net(series=torch.cat([before, parts.relative.unsqueeze(2), after], dim=2))
        value = parts.last + parts.scale * (change + parts.change)
        return value if is_log else value * self.reference.factor + self.reference.shift
