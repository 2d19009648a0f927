"""Names of an exported graph's outputs, column names that would clash with them, and names of the model's files."""

from __future__ import annotations

from models.data.preparation import Preparation
from models.errors import UsageError

LABEL, PROBABILITIES, PREDICTION = "label", "probabilities", "prediction"
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


def refuse_taken_names(preparation: Preparation) -> None:
    """Refuse input columns that have the name of an output of the graph, before anything is trained.

    Raises:
        UsageError: Names the column and the cure.
    """
    if preparation.kind != "table":
        return
    columns = {part.name for part in preparation.numeric} | {part.name for part in preparation.categorical}
    taken = sorted(columns & set(output_names(preparation)))
    if taken:
        raise UsageError(
            f"data.features: column {taken[0]!r} has the name of an output of the served model: rename it in "
            "the source or in `features.make`, or drop it with `features.drop`"
        )
