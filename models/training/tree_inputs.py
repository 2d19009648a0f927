"""What trees learn from: the columns of a table, or the features of the windows of series."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from models.data.preparation import Preparation
from models.kinds.data_kind import PerDataKind
from models.nets.window_features import WindowFeatures
from models.training.batches.example_set import ExampleSet
from models.training.batches.examples import LARGEST_PASS


class TreeInputs(NamedTuple):
    """The inputs of trees, and how the sum of their leaves becomes the output of the model.

    Attributes:
        features: (example, feature), float32. Tables: the numeric columns, then the indices of the categorical ones.
        base: What the trees correct: the reference forecast of series, in the target's standardised unit
            (example, output); 0 for tables.
        slope: The unit of the correction (example, 1); 1 for tables.
    """

    features: NDArray[np.float32]
    base: NDArray[np.float64]
    slope: NDArray[np.float64]

    def output(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the outputs of the model (example, output) for sums of leaves."""
        outputs: NDArray[np.float64] = self.base + self.slope * raw
        return outputs

    def label(self, targets: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return what the trees learn (example, output) for standardised targets, (example,) or (example, output)."""
        label: NDArray[np.float64] = (targets.reshape(len(targets), -1) - self.base) / self.slope
        return label


def tree_inputs(examples: ExampleSet, preparation: Preparation, positions: torch.Tensor | None = None) -> TreeInputs:
    """Return the inputs for the examples at `positions`, default all.

    Cost: for series the windows of `LARGEST_PASS` examples at a time, beside the result.
    """
    return _INPUTS[preparation.kind](examples, preparation, positions)


def _of_rows(examples: ExampleSet, preparation: Preparation, positions: torch.Tensor | None) -> TreeInputs:
    del preparation
    is_whole = positions is None and examples.keep is None
    indices = torch.arange(len(examples)) if positions is None else positions
    inputs = examples.tensors if is_whole else examples.gather(indices)  # the whole without a copy
    features = torch.cat([inputs["numeric"], inputs["categorical"].float()], dim=1).numpy()
    return TreeInputs(features, np.zeros((len(indices), 1)), np.ones((len(indices), 1)))


def _of_windows(examples: ExampleSet, preparation: Preparation, positions: torch.Tensor | None) -> TreeInputs:
    indices = torch.arange(len(examples)) if positions is None else positions
    windows = WindowFeatures(preparation)
    num = preparation.num_outputs
    features, rest = np.empty((0, 0), np.float32), np.empty((len(indices), num + 1))
    num_done = 0
    with torch.inference_mode():
        for some in torch.split(indices, LARGEST_PASS):
            part = windows(**examples.gather(some)).numpy()
            if not num_done:
                features = np.empty((len(indices), part.shape[1] - num - 1), np.float32)
            rows = slice(num_done, num_done := num_done + len(some))
            features[rows], rest[rows] = part[:, : -num - 1], part[:, -num - 1 :]
    return TreeInputs(features, rest[:, :num], rest[:, num:])


_INPUTS: PerDataKind[Callable[[ExampleSet, Preparation, torch.Tensor | None], TreeInputs]] = {
    "table": _of_rows,
    "image": _of_rows,
    "series": _of_windows,
    "text": _of_rows,
}
"""Trees take tables and series alone, as their row of the catalogue says."""
