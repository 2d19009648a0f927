"""Outputs of a model: their names, which of them is logged, and columns that may not have these names; file names."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.data.preparation import Preparation
from models.errors import UsageError
from models.inference.portable import BITS_PER_CHAR, LABEL, LABELS, PREDICTION, PROBABILITIES, column_names
from models.kinds.task import NUMBER_TASKS, Task

LOG_PROBABILITIES, BITS = "log_probabilities", "bits"

BACKGROUND_FILE = "background.json"
"""The training rows that explanations compare a row with; see `models.inference.explain`."""
FP32 = "fp32"
"""Name of the variant that is the unchanged export."""
UNCHANGED_FILE = "model.fp32.onnx"
"""The unchanged export; it lies beside `MODEL_FILE` if that is a smaller variant."""


def output_names(preparation: Preparation) -> list[str]:
    """Return the outputs of the graph; the last one is what metrics take.

    `prediction`; `label` or (of several) `labels`, and `probabilities`; for text `log_probabilities` and `bits`.
    """
    if preparation.task == "language":
        return [LOG_PROBABILITIES, BITS]
    if preparation.task in NUMBER_TASKS:
        return [PREDICTION]
    return [LABELS if preparation.task == "multilabel" else LABEL, PROBABILITIES]


def answer_columns(preparation: Preparation) -> list[str]:
    """Return the names of the columns that callers see; empty for a model with one number, and for text."""
    target = preparation.target
    names = target.classes or [output.name for output in target.outputs]
    return column_names(preparation.task, names) if names else []


def scores_of(outputs: Mapping[str, np.ndarray], task: Task) -> np.ndarray:
    """Return the values that are logged, from a model's outputs: float64 (row,), or (row, class) or (row, output).

    They are predictions, probabilities (for two classes that of the positive class), or the bits per character of
    texts.
    """
    scored = BITS_PER_CHAR if task == "language" else PREDICTION if task in NUMBER_TASKS else PROBABILITIES
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
