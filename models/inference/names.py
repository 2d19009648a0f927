"""Outputs of a model: their names, which of them is logged, and columns that may not have these names; file names."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.data.preparation import Preparation
from models.errors import UsageError
from models.inference.portable import BITS_PER_CHAR, LABEL, PREDICTION, PROBABILITIES
from models.project_spec.blocks import Task

LOG_PROBABILITIES, BITS = "log_probabilities", "bits"

BACKGROUND_FILE = "background.json"
"""The training rows that explanations compare a row with; see `models.inference.explain`."""
FP32 = "fp32"
"""Name of the variant that is the unchanged export."""
UNCHANGED_FILE = "model.fp32.onnx"
"""The unchanged export; it lies beside `model.onnx` if that is a smaller variant."""


def output_names(preparation: Preparation) -> list[str]:
    """Return `label` and `probabilities`, or `prediction`; for text `log_probabilities` and `bits`."""
    if preparation.task == "language":
        return [LOG_PROBABILITIES, BITS]
    return [PREDICTION] if preparation.task == "regression" else [LABEL, PROBABILITIES]


def scores_of(outputs: Mapping[str, np.ndarray], task: Task) -> np.ndarray:
    """Return the values that are logged, from a model's outputs: float64 (row,), or (row, class) for multiclass.

    They are predictions, probabilities (for two classes that of the positive class), or the bits per character of
    texts.
    """
    scored = {"regression": PREDICTION, "language": BITS_PER_CHAR}.get(task, PROBABILITIES)
    values = outputs[scored][:, 1] if task == "binary" else outputs[scored]
    return np.ascontiguousarray(values, np.float64)


def refuse_taken_names(preparation: Preparation) -> None:
    """Refuse input columns that have the name of an output of the graph, before anything is trained.

    Raises:
        UsageError: Names the column and the cure.
    """
    if preparation.kind != "table":
        return
    taken = sorted({*preparation.columns} & {*output_names(preparation)})
    if taken:
        raise UsageError(
            f"data.features: column {taken[0]!r} has the name of an output of the served model: rename it in "
            "the source or in `features.make`, or drop it with `features.drop`"
        )
