"""What a model of each output learns from rows: its target and the weights of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from models.data.preparation import Preparation
from models.kinds.data_kind import PerDataKind
from models.training.optimisation.losses import class_weights, relative_weights
from models.training.tree_inputs import TreeInputs

Labels = Iterator[tuple[NDArray[Any], NDArray[Any] | None]]
"""The target (row,) and the weights of the rows (row,), of each output, or of all classes together."""


@dataclass(frozen=True)
class LabelRules:
    """What decides the targets and the weights.

    Attributes:
        preparation: The preparation of the data.
        loss: The loss that is learnt, such as mse or relative_l1.
        is_balanced: Whether each class counts as much as another.
    """

    preparation: Preparation
    loss: str
    is_balanced: bool

    def labels(self, targets: torch.Tensor, row_weights: torch.Tensor | None, inputs: TreeInputs) -> Labels:
        """Return the target and the weights of each output.

        Args:
            targets: Of the training rows, (row,) or (row, output).
            row_weights: The rows' own weights (row,), or None.
            inputs: The inputs of the rows.
        """
        return _LABELS[self.preparation.kind](self, targets, row_weights, inputs)

    def class_weights(self, targets: torch.Tensor, row_weights: torch.Tensor | None) -> torch.Tensor | None:
        """Return the weight of each class, of labels (2, label); None where all count alike."""
        if not self.is_balanced:
            return None
        return class_weights(self.preparation.target, self.preparation.task, targets, row_weights)

    def row_weights(self, targets: torch.Tensor, own: torch.Tensor | None) -> NDArray[Any] | None:
        """Return the weights of rows: their own, balanced classes, and the shares of a relative error."""
        weights = own
        if self.loss == "relative_l1":
            relative = relative_weights(targets, self.preparation.target).double()
            relative = relative / relative.mean()
            weights = relative if own is None else relative * own
        of_classes = self.class_weights(targets, own)
        if of_classes is not None:
            weights = of_classes[targets.long()] * (1.0 if own is None else own)
        return None if weights is None else weights.numpy()


def _of_windows(
    rules: LabelRules, targets: torch.Tensor, row_weights: torch.Tensor | None, inputs: TreeInputs
) -> Labels:
    of_rows = rules.row_weights(targets, row_weights)
    # An error of the correction counts in the unit of the target.
    power = 2 if rules.loss == "mse" else 1
    unit = inputs.slope[:, 0] ** power
    weights = unit / unit.mean() * (1.0 if of_rows is None else of_rows)
    for label in inputs.label(targets.numpy()).T:
        yield np.ascontiguousarray(label), weights


def _of_rows(rules: LabelRules, targets: torch.Tensor, row_weights: torch.Tensor | None, inputs: TreeInputs) -> Labels:
    del inputs
    if targets.ndim == 1:
        yield targets.numpy(), rules.row_weights(targets, row_weights)
        return
    of_labels = rules.class_weights(targets, row_weights)
    for index in range(rules.preparation.num_outputs):
        label, weights = targets[:, index].contiguous(), row_weights
        if of_labels is not None:
            weights = of_labels[label.long(), index] * (1.0 if row_weights is None else row_weights)
        yield label.numpy(), None if weights is None else weights.numpy()


_LABELS: PerDataKind[Callable[[LabelRules, torch.Tensor, torch.Tensor | None, TreeInputs], Labels]] = {
    "table": _of_rows,
    "image": _of_rows,
    "series": _of_windows,
    "text": _of_rows,
}
