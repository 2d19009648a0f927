"""The target in a preparation: its classes, its scale, or its several outputs."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from models.frozen_model import FrozenModel

LARGEST_LOGARITHM, LEAST_VALUE = 80.0, 1e-30
"""Limits on the log scale: beyond them, exponential and logarithm would leave the range of float32."""


class OutputColumn(FrozenModel):
    """One of several outputs of a row: a target, a quantile of a target, a label, or a horizon of a series.

    The net learns `(value - shift) / scale`, where the value is that of `column` in the target's own unit. A label is
    learnt as it is, 0 or 1.
    """

    name: str = Field(description="Unique among the outputs; a column of the answer is named after it.")
    column: str = Field(description="The column of the prepared rows that holds the true value.")
    shift: float = 0.0
    scale: float = 1.0
    quantile: float | None = Field(None, description="The share of true values that lie below the prediction.")
    horizon: int | None = Field(None, description="Steps ahead, of a series.")


class TargetEncoding(FrozenModel):
    """The target of the prediction.

    Classification: `classes` in the order of the outputs (binary: [negative, positive]).
    Regression: the net learns `(value - shift) / scale`, or `(log(value + log_offset) - shift) / scale`.
    Ranking: the net learns a score of the value as it is; `group` is set.
    Several outputs of a row: `outputs` in the order of the net's outputs; everything that names, scales or counts them
    reads this table. Targets and predictions are then arrays (row, output). Horizons may be on the log scale too.
    """

    name: str = Field(description="The target column, or several, separated by commas.")
    classes: list[str] | None = None
    dtype: Literal["string", "integer", "boolean", "float"] = "float"
    shift: float = 0.0
    scale: float = 1.0
    log_offset: float | None = Field(None, description="Set on the log scale; 0 unless the training rows hold zeros.")
    deviation: float | None = Field(None, description="Standard deviation of the values, if not `scale`.")
    outputs: list[OutputColumn] = Field(default_factory=list)
    group: str | None = Field(None, description="Of a ranking: the column whose value the rows of a group share.")

    @property
    def columns(self) -> list[str]:
        """The columns of the prepared rows that hold true values."""
        return list(dict.fromkeys(output.column for output in self.outputs)) or [self.name]

    @property
    def names(self) -> list[str]:
        """The names of the classes, or of several outputs; empty for one number and for text."""
        return self.classes or [output.name for output in self.outputs]

    @property
    def class_names(self) -> list[str]:
        """The classes; empty for a target without."""
        return self.classes or []

    @property
    def num_quantiles(self) -> int:
        """Quantiles of each true value, which are next to each other among the outputs; 1 without quantiles."""
        return max(1, len(self.outputs) // len(self.columns))

    def predicts_same(self, other_target: TargetEncoding) -> bool:
        """Return whether predictions of this target can be compared with those of another one."""
        ours, theirs = (
            [(output.name, output.quantile) for output in target.outputs] for target in (self, other_target)
        )
        return (self.classes, ours) == (other_target.classes, theirs)

    def is_reversed(self, other_target: TargetEncoding) -> bool:
        """Return whether both are of the same two classes, of which the other one is positive."""
        return len(self.class_names) == 2 and self.class_names[::-1] == other_target.classes

    @property
    def positive(self) -> str:
        """The positive one of two classes; empty for other targets."""
        return self.class_names[1] if len(self.class_names) == 2 else ""

    @property
    def spread(self) -> float:
        """Standard deviation of the training targets in their own unit."""
        return self.scale if self.deviation is None else self.deviation

    def shift_and_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both as float64: (), or of several outputs (output,)."""
        if not self.outputs:
            return np.array(self.shift, np.float64), np.array(self.scale, np.float64)
        shift, scale = ([getattr(output, name) for output in self.outputs] for name in ("shift", "scale"))
        return np.array(shift, np.float64), np.array(scale, np.float64)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return what the net learns for values in their own unit, float64 (row,); of several outputs (row, output)."""
        shift, scale = self.shift_and_scale()
        if self.log_offset is not None:
            values = np.log(np.maximum(values + self.log_offset, LEAST_VALUE))
        return np.asarray((values - shift) / scale)

    def decode(self, learnt: np.ndarray) -> np.ndarray:
        """Return the values in their own unit for what the net predicts, float64, in the shape of `encode`.

        On the log scale none is below zero, as no true value is.
        """
        shift, scale = self.shift_and_scale()
        values = np.asarray(np.asarray(learnt, dtype=np.float64) * scale + shift)
        if self.log_offset is None:
            return values
        return np.asarray(np.maximum(np.exp(np.minimum(values, LARGEST_LOGARITHM)) - self.log_offset, 0.0))
