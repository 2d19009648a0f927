"""The normal score of a number with heavy tails, as an input: its record."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from models.inputs.record import DerivedInput


class ScoreInput(DerivedInput):
    """Where a number stands among the training rows, as a normal distribution has it; a missing one in the middle.

    What is in proportion to the number shows in the column's own input, what goes by its rank in this one.
    """

    PLURAL: ClassVar[str] = "normal scores"
    kind: Literal["score"] = "score"
    rises: ClassVar[bool] = True
    knots: list[float] = Field(description="Quantiles of the training values, ascending.")
    scores: list[float] = Field(description="What a normal distribution has there; between them straight lines.")

    @property
    def summary(self) -> str:
        """What it is, and between which numbers it rises."""
        return f"normal score of the rank of {self.of}, from {self.knots[0]:.4g} to {self.knots[-1]:.4g}"
