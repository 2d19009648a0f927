"""The parity check: the exported graph must give the trained model's predictions on real rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from models.data.preparation import ClassHead, Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import TrainingError
from models.inference.predict import Feed, predict
from models.judge.verdict import Parity
from models.kinds.task import PerTask, Task
from models.metrics.classification import Decision, at_threshold, predicted_class
from models.project_spec.references import is_own_code

TOLERANCE = 1e-4
"""Absolute for a probability, in bits for text, for a regression relative to the larger of value and target's spread.

Source: float32 graphs differ by about 1e-7 from torch (measured), a wrong operator by more than 1e-3.
"""
SHOWN = 6


def parity(
    path: Path, feeds: Iterable[Feed], expected: np.ndarray, preparation: Preparation, nets: Sequence[str] = ()
) -> Parity:
    """Compare ONNX Runtime's predictions with those of the trained model.

    Args:
        path: The exported model.
        feeds: Raw rows, batch by batch.
        expected: The trained model's predictions for the same rows, in the form of `predict`.
        preparation: The preparation schema of the model.
        nets: The resolved names of the nets in it: the cure is in the user's code only where one is own code.

    Raises:
        TrainingError: Rows are missing, or the worst row differs by more than the tolerance; the message shows it.
    """
    got = predict(path, feeds, preparation)
    if got.shape != expected.shape:
        raise TrainingError(
            f"export: the graph predicts {got.shape}, the trained model {expected.shape}: {_cure(nets)}"
        )
    distances = _distances(got, expected, preparation.target, preparation.task)
    worst = int(np.argmax(distances)) if len(distances) else 0
    # `not <=` instead of `>`, so that NaN fails too.
    if len(distances) and not distances[worst] <= TOLERANCE:
        raise TrainingError(
            f"export: in row {worst + 1} of the validation rows compared, the trained model predicts "
            f"{_shown(expected[worst])}, the ONNX graph {_shown(got[worst])}: {distances[worst]:.2g} apart, "
            f"expected at most {TOLERANCE:g}: {_cure(nets)}"
        )
    return Parity(
        max_difference=float(distances.max(initial=0.0)),
        tolerance=TOLERANCE,
        num_examples=len(distances),
        label_flips=_label_flips(got, expected, preparation.class_head, preparation.task),
    )


def _cure(nets: Sequence[str]) -> str:
    names = ", ".join(filter(is_own_code, nets))
    if names:
        return f"{names} has what the export translates wrongly: replace what is unusual there, as a branch on a shape"
    return "Loopline's export is at fault, not the data or the spec: report it with this message; another net may do"


def _distances(got: np.ndarray, expected: np.ndarray, target: TargetEncoding, task: Task) -> np.ndarray:
    """Return the distance between each row's two predictions (rows,)."""
    unit = PARITY_RULES[task].unit(expected, target)
    apart: np.ndarray = np.abs(got - expected) / unit
    return apart.max(axis=1) if apart.ndim > 1 else apart


def _label_flips(got: np.ndarray, expected: np.ndarray, class_head: ClassHead, task: Task) -> int:
    return PARITY_RULES[task].flips(got, expected, class_head.decision)


def _absolute(expected: np.ndarray, target: TargetEncoding) -> np.ndarray:
    del target
    return np.ones_like(expected)


def _relative(expected: np.ndarray, target: TargetEncoding) -> np.ndarray:
    is_one_unit = not target.outputs or target.log_offset is not None
    scale = target.spread if is_one_unit else target.shift_and_scale()[1]
    return np.asarray(np.maximum(np.abs(expected), scale))


def _flipped_labels(got: np.ndarray, expected: np.ndarray, decision: Decision) -> int:
    labels, before = (at_threshold(values, decision) > 0.5 for values in (got, expected))
    return int((labels != before).any(axis=1).sum())


def _flipped_classes(got: np.ndarray, expected: np.ndarray, decision: Decision) -> int:
    classes, before = (predicted_class(at_threshold(values, decision)) for values in (got, expected))
    return int((classes != before).sum())


def _no_flips(got: np.ndarray, expected: np.ndarray, decision: Decision) -> int:
    del got, expected, decision
    return 0


class ParityRule(NamedTuple):
    """How two predictions of a task are compared: `unit` of their distance, and the number of rows decided unlike."""

    unit: Callable[[np.ndarray, TargetEncoding], np.ndarray]
    flips: Callable[[np.ndarray, np.ndarray, Decision], int]


_NUMBERS = ParityRule(_relative, _no_flips)
PARITY_RULES: PerTask[ParityRule] = {
    "binary": ParityRule(_absolute, _flipped_classes),
    "multiclass": ParityRule(_absolute, _flipped_classes),
    "multilabel": ParityRule(_absolute, _flipped_labels),
    "regression": _NUMBERS,
    "quantile": _NUMBERS,
    "language": ParityRule(_absolute, _no_flips),
    "ranking": _NUMBERS,
}


def _shown(value: np.ndarray) -> str:
    numbers = np.atleast_1d(value)
    rest = ", ..." if len(numbers) > SHOWN else ""
    return "[" + ", ".join(f"{number:.6g}" for number in numbers[:SHOWN]) + rest + "]"
