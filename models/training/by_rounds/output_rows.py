"""What the model of each output learns, where each has a model of its own: the target and the weights of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from models.data.preparation import Preparation
from models.kinds.data_kind import PerDataKind
from models.training.optimisation.losses import class_weights, relative_weights
from models.training.tree_inputs import TreeInputs

Labels = Iterator[tuple[NDArray[Any], NDArray[Any] | None]]
"""The target (row,) and the weights of the rows of each model."""


class LabelSettings(NamedTuple):
    """What decides the weights of rows.

    Attributes:
        preparation: Of the data.
        loss: The loss that is learnt, such as mse or relative_l1.
        balanced: Whether classes weigh alike: `train.class_weights: balanced`.
    """

    preparation: Preparation
    loss: str
    balanced: bool


def labels(
    settings: LabelSettings, targets: torch.Tensor, row_weights: torch.Tensor | None, inputs: TreeInputs
) -> Labels:
    """Yield the target and the weights of the rows of each model: one an output, or one of all classes.

    Args:
        settings: What decides the weights.
        targets: Of the training rows (row,) or (row, output).
        row_weights: Of the training rows (row,); None: all ones.
        inputs: Of the training rows.
    """
    return _LABELS[settings.preparation.kind](settings, targets, row_weights, inputs)


def _labels_of_windows(
    settings: LabelSettings, targets: torch.Tensor, row_weights: torch.Tensor | None, inputs: TreeInputs
) -> Labels:
    of_rows = _row_weights(settings, targets, row_weights)
    # An error of the correction counts in the unit of the target.
    power = 2 if settings.loss == "mse" else 1
    unit = inputs.slope[:, 0] ** power
    weights = unit / unit.mean() * (1.0 if of_rows is None else of_rows)
    for label in inputs.label(targets.numpy()).T:
        yield np.ascontiguousarray(label), weights


def _labels_of_rows(
    settings: LabelSettings, targets: torch.Tensor, row_weights: torch.Tensor | None, inputs: TreeInputs
) -> Labels:
    del inputs
    if targets.ndim == 1:
        yield targets.numpy(), _row_weights(settings, targets, row_weights)
        return
    preparation = settings.preparation
    of_labels = class_weights(preparation.target, preparation.task, targets, row_weights) if settings.balanced else None
    for index in range(preparation.num_outputs):
        label, weights = targets[:, index].contiguous(), row_weights
        if of_labels is not None:
            weights = of_labels[label.long(), index] * (1.0 if row_weights is None else row_weights)
        yield label.numpy(), None if weights is None else weights.numpy()


_LABELS: PerDataKind[Callable[[LabelSettings, torch.Tensor, torch.Tensor | None, TreeInputs], Labels]] = {
    "table": _labels_of_rows,
    "image": _labels_of_rows,
    "series": _labels_of_windows,
    "text": _labels_of_rows,
}


def _row_weights(
    settings: LabelSettings, targets: torch.Tensor, row_weights: torch.Tensor | None
) -> NDArray[Any] | None:
    """Return the weights of the training rows: their own, balanced classes, and the shares of a relative error."""
    preparation, weights = settings.preparation, row_weights
    if settings.loss == "relative_l1":
        relative = relative_weights(targets, preparation.target).double()
        relative = relative / relative.mean()
        weights = relative if row_weights is None else relative * row_weights
    of_classes = (
        class_weights(preparation.target, preparation.task, targets, row_weights) if settings.balanced else None
    )
    if of_classes is not None:
        weights = of_classes[targets.long()] * (1.0 if row_weights is None else row_weights)
    return None if weights is None else weights.numpy()
