"""Outputs of a model: their names, which of them is logged, and columns that may not have these names; file names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import UsageError
from models.inference.portable import BITS_PER_CHAR, LABEL, LABELS, PREDICTION, PROBABILITIES, column_names
from models.kinds.task import PerTask, Task

LOG_PROBABILITIES, BITS = "log_probabilities", "bits"

BACKGROUND_FILE = "background.json"
"""The training rows that explanations compare a row with; see `models.inference.explain`."""
FP32 = "fp32"
"""Name of the variant that is the unchanged export."""
UNCHANGED_FILE = "model.fp32.onnx"
"""The unchanged export; it lies beside `MODEL_FILE` if that is a smaller variant."""


class Answer(NamedTuple):
    """What a model of a task answers: `outputs` of its graph, of which the last one is what metrics take.

    `logged` is the output whose values are logged, and `part` what of an output metrics and the log have.
    """

    outputs: tuple[str, ...]
    logged: str
    part: Callable[[np.ndarray], np.ndarray]


def _whole(values: np.ndarray) -> np.ndarray:
    return values


def _of_positive_class(values: np.ndarray) -> np.ndarray:
    return values[:, 1]


_NUMBERS = Answer((PREDICTION,), PREDICTION, _whole)
ANSWERS: PerTask[Answer] = {
    "binary": Answer((LABEL, PROBABILITIES), PROBABILITIES, _of_positive_class),
    "multiclass": Answer((LABEL, PROBABILITIES), PROBABILITIES, _whole),
    "multilabel": Answer((LABELS, PROBABILITIES), PROBABILITIES, _whole),
    "regression": _NUMBERS,
    "quantile": _NUMBERS,
    "language": Answer((LOG_PROBABILITIES, BITS), BITS_PER_CHAR, _whole),
    "ranking": _NUMBERS,
}


def output_names(task: Task) -> list[str]:
    """Return the outputs of the graph; the last one is what metrics take.

    `prediction`; `label` or (of several) `labels`, and `probabilities`; for text `log_probabilities` and `bits`.
    """
    return [*ANSWERS[task].outputs]


def answer_columns(task: Task, target: TargetEncoding) -> list[str]:
    """Return the names of the columns that callers see; empty for a model with one number, and for text."""
    return column_names(output_names(task), target.names)


def scores_of(outputs: Mapping[str, np.ndarray], task: Task) -> np.ndarray:
    """Return the values that are logged, from a model's outputs: float64 (row,), or (row, class) or (row, output).

    They are predictions, probabilities (for two classes that of the positive class), or the bits per character of
    texts.
    """
    answer = ANSWERS[task]
    return np.ascontiguousarray(answer.part(outputs[answer.logged]), np.float64)


def refuse_taken_names(preparation: Preparation) -> None:
    """Refuse input columns that have the name of an output of the graph, before anything is trained.

    Raises:
        UsageError: Names the column and the cure.
    """
    if preparation.kind != "table":
        return
    clashes = sorted({*preparation.columns} & {*output_names(preparation.task)})
    if clashes:
        raise UsageError(
            f"data.features: column {clashes[0]!r} has the name of an output of the served model: rename it in "
            "the source or in `features.make`, or drop it with `features.drop`"
        )
