"""The mean of the target by the levels of a category, as an input: its record."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from models.inputs.record import DerivedInput, Form


class TargetMeanInput(DerivedInput):
    """What the target is on average where a category has this level; in training, in the rows of other folds."""

    PLURAL: ClassVar[str] = "means of the target"
    kind: Literal["target_mean"] = "target_mean"
    form: Form = "made"
    rises: ClassVar[bool] = False
    levels: list[str] = Field(description="The most frequent levels of the training rows.")
    values: list[float] = Field(
        description="(1 + level,), standardised: of a level that is rare, new or missing, the mean of all rows; then "
        "of each level."
    )

    @property
    def summary(self) -> str:
        """Of how many levels."""
        return f"mean of the target in each of {len(self.levels):,} levels of {self.of}"
