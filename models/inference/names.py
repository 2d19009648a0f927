"""Names of an exported graph's outputs, the columns that may not be called so, and names of its files."""

from __future__ import annotations

from models.data.preparation import Preparation
from models.errors import UsageError

LABEL, PROBABILITIES, PREDICTION = "label", "probabilities", "prediction"
LOG_PROBABILITIES, BITS = "log_probabilities", "bits"

BACKGROUND_FILE = "background.json"
"""Training rows that a row is compared with to be explained; see `models.inference.explain`."""
FP32 = "fp32"
"""The variant that is the export itself."""
UNCHANGED_FILE = "model.fp32.onnx"
"""The export itself, beside `model.onnx` where that is a smaller variant."""


def output_names(preparation: Preparation) -> list[str]:
    """`label` and `probabilities`, or `prediction`; for text `log_probabilities` and `bits`."""
    if preparation.task == "language":
        return [LOG_PROBABILITIES, BITS]
    return [PREDICTION] if preparation.task == "regression" else [LABEL, PROBABILITIES]


def refuse_taken_names(preparation: Preparation) -> None:
    """Say no to input columns that are called like an output of the graph, before anything is trained.

    Raises:
        UsageError: The message names the column and the cure.
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
