"""Linear models: logistic or ridge regression on the columns of a table, and ridge regression on windows of series."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from models.data.window_reference import MOVES
from models.errors import UsageError
from models.kinds.data_kind import PerDataKind
from models.nets.relative import WindowParts, on_log_scale, window_parts
from models.nets.sizes import NetReference, Sizes


class Linear(nn.Module):
    """One weight for each numeric input and each category, and a bias; all begin at zero, since the fit is convex.

    An embedding of width `num_outputs` holds the weights of one-hot categories without making the one-hot matrix.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(sizes.num_outputs, sizes.num_numeric)) if sizes.num_numeric else None
        self.categories = nn.ModuleList(nn.Embedding(n, sizes.num_outputs) for n in sizes.cardinalities)
        for table in self.categories.parameters():
            nn.init.zeros_(table)
        self.bias = nn.Parameter(torch.zeros(sizes.num_outputs))

    def forward(self, numeric: torch.Tensor, categorical: torch.Tensor | None = None) -> torch.Tensor:
        """Return (batch, num_outputs) from numeric (batch, num_numeric) and category indices (batch, columns)."""
        output = self.bias if self.weight is None else nn.functional.linear(numeric, self.weight, self.bias)
        if categorical is not None:
            for column, table in enumerate(self.categories):
                output = output + table(categorical[:, column])
        return output

    def penalty(self) -> torch.Tensor:
        """Return the sum of squared weights, a scalar; the bias is free."""
        weights = [parameter for parameter in self.parameters() if parameter is not self.bias]
        return torch.stack([weight.square().sum() for weight in weights]).sum()


class LinearWindow(nn.Module):
    """The last value of a window plus a linear map of the window relative to it.

    It is the linear reference forecast (`models/data/window_reference.py`) with weights of its own: penalty and scaling
    are chosen on the validation examples, not on some of the training examples. The quantiles of a horizon have the
    same weights, and constants of their own.

    Args:
        reference: The window's reference, of which the target's column and units are taken.
        length: Steps of a window.
        num_features: Inputs of a step.
        num_outputs: Horizons, or all their quantiles.
    """

    is_scaled: torch.Tensor
    numbers: torch.Tensor

    def __init__(self, reference: NetReference, length: int, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.reference = reference
        self.length = length
        self.weight = nn.Parameter(torch.zeros(num_outputs, length + MOVES * (num_features - 1) + 1))
        self.register_buffer("is_scaled", torch.tensor(False))
        numbers = [*(reference.log or ()), reference.factor, reference.shift]
        self.register_buffer("numbers", torch.tensor(numbers), persistent=False)
        linear = reference.forecast.model_copy(update={"kind": "linear"})
        self._plain, self._scaled = (linear.model_copy(update={"is_scaled": is_scaled}) for is_scaled in (False, True))

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """Return (batch, output), the standardised target, from series (batch, time, feature)."""
        floor = self.reference.forecast.floor
        plain, scaled = (
            window_parts(series, reference, self.weight, floor) for reference in (self._plain, self._scaled)
        )
        change = torch.where(self.is_scaled, scaled.change * scaled.scale, plain.change)
        if self.reference.log is None:
            return (plain.last + change) * self.reference.factor + self.reference.shift
        own_series = series[:, :, self.reference.forecast.column]
        parts = on_log_scale(WindowParts(plain.relative, plain.last, plain.scale, change), own_series, self.numbers)
        return parts.last + parts.change


def build(sizes: Sizes, l2: float = 1.0, iterations: int = 100) -> nn.Module:
    """Build a linear model; `l2` and `iterations` are for the fit in `models/training/linear.py`.

    Raises:
        UsageError: Of series, there is no reference forecast.
    """
    del l2, iterations
    return _LINEAR[sizes.kind](sizes)


def _of_windows(sizes: Sizes) -> nn.Module:
    if sizes.reference is None:
        raise UsageError(
            "model.net: this family continues the target's window, but data.window.reference is none, or the target no "
            "input: leave both as they are by default, or take another net"
        )
    return LinearWindow(sizes.reference, *sizes.window, sizes.num_outputs)


def build_naive(sizes: Sizes) -> nn.Module:
    """Build the naive forecast of series: a linear map of the window that takes one of its values as it is.

    Raises:
        UsageError: There is no reference forecast.
    """
    return _LINEAR[sizes.kind](sizes)


_LINEAR: PerDataKind[Callable[[Sizes], nn.Module]] = {
    "table": Linear,
    "image": Linear,
    "series": _of_windows,
    "text": Linear,
}
