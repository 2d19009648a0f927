"""A numeric input: its record."""

from __future__ import annotations

from pydantic import Field

from models.frozen_model import FrozenModel


class NumericInput(FrozenModel):
    """A numeric input: `(value or fill - shift) / scale`, in float64, then float32; values end at `low` and `high`."""

    name: str
    fill: float
    shift: float = 0.0
    scale: float = 1.0
    low: float | None = Field(None, description="Values below count as this; None in series.")
    high: float | None = Field(None, description="Values above count as this; set where `low` is.")
    source: str | None = Field(None, description="Of series: the column whose value `ahead` steps later it is.")
    ahead: int = 0

    @property
    def column(self) -> str:
        """The column of the data that it is made of."""
        return self.source or self.name

    def as_column(self) -> NumericInput:
        """Return the same input of data that hold it as a column."""
        return self.model_copy(update={"source": None, "ahead": 0})
