"""What trees read of a window of series: lags, rolling means and the reference forecast, inside the exported graph.

Trees do not extrapolate, so they learn a correction of the reference forecast (`models/data/window_reference.py`), as
the nets do, and read the target relative to its last value. The same module makes the features in training and, as
ONNX nodes, in the graph: callers send the window and nothing else.
"""

from __future__ import annotations

import torch
from torch import nn

from models.data.preparation import Preparation
from models.nets.relative import on_log_scale, weights_of, window_parts
from models.nets.sizes import NetReference

MOST_LAGS = 96
"""Most single steps of a window that trees read, the newest; means tell of the older ones."""


class WindowFeatures(nn.Module):
    """Returns features and the forecast that the trees correct, from series (batch, time, feature).

    The output is float64 (batch, num_features + num_outputs + 1): the features, rounded to float32, so that torch and
    ONNX Runtime decide alike at each threshold; then the base of each output's standardised target and their slope:
    the target is base + slope * trees.
    """

    weights: torch.Tensor
    quantiles: torch.Tensor
    numbers: torch.Tensor

    def __init__(self, preparation: Preparation) -> None:
        super().__init__()
        window = preparation.window
        assert window is not None  # the preparation of series has one
        self.reference = NetReference.of(preparation)
        self.length = window.length
        season = preparation.season
        spans = {1 << power for power in range(1, 31) if 1 << power < window.length} | {window.length}
        self.spans = sorted(spans | ({season} if season and season < window.length else set()))
        self.num_outputs = preparation.num_outputs
        numbers: list[float] = []
        if self.reference:
            numbers = [self.reference.forecast.floor, *(self.reference.log or ())]
            numbers += [self.reference.factor, self.reference.shift]
        weights = weights_of(self.reference, torch.float64) if self.reference else torch.empty(0)
        quantiles = self.reference.forecast.quantiles if self.reference else []
        self.register_buffer("weights", weights, persistent=False)
        self.register_buffer("quantiles", torch.tensor(quantiles, dtype=torch.float64), persistent=False)
        self.register_buffer("numbers", torch.tensor(numbers, dtype=torch.float64), persistent=False)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """Return (batch, num_features + num_outputs + 1)."""
        wide = series.double()
        if self.reference is None:
            zero = torch.zeros_like(wide[:, -1, :1])
            features = self._of(wide)
            return torch.cat([features.float().double(), *[zero] * self.num_outputs, zero + 1.0], dim=1)
        forecast = self.reference.forecast
        parts = window_parts(wide, forecast, self.weights, self.numbers[0], self.quantiles)
        factor, shift = self.numbers[-2], self.numbers[-1]
        if self.reference.log is not None:
            parts = on_log_scale(parts, wide[:, :, forecast.column], self.numbers[1:])
            factor, shift = torch.ones_like(factor), torch.zeros_like(shift)
        other_columns = torch.cat([wide[:, :, : forecast.column], wide[:, :, forecast.column + 1 :]], dim=2)
        facts = [parts.change, parts.last, parts.scale, other_columns[:, -1], other_columns.mean(dim=1)]
        features = torch.cat([self._of(parts.relative.unsqueeze(2)), *facts], dim=1)
        base = (parts.last + parts.scale * parts.change) * factor + shift
        slope = parts.scale * factor
        bases = [base] * (self.num_outputs // base.shape[1])
        return torch.cat([features.float().double(), *bases, slope], dim=1)

    def _of(self, windows: torch.Tensor) -> torch.Tensor:
        """Return the newest steps, rolling means and the spread of each column of windows (batch, time, column)."""
        lags = windows[:, -min(self.length, MOST_LAGS) :].flatten(1)
        means = [windows[:, -span:].mean(dim=1) for span in self.spans]
        spread = (windows - means[-1].unsqueeze(1)).square().mean(dim=1).sqrt()
        return torch.cat([lags, *means, spread], dim=1)
