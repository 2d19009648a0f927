"""A numeric input: its record."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from models.inputs.record import SingleNumber, counts_as


class ScaledNumber(SingleNumber):
    """A number: `(value or fill - shift) / scale`, in float64, then float32; values end at `low` and `high`."""

    fill: float
    shift: float = 0.0
    scale: float = 1.0
    low: float | None = Field(None, description="Values below count as this; None in series.")
    high: float | None = Field(None, description="Values above count as this; set where `low` is.")

    @property
    def summary(self) -> str:
        """How it is standardised."""
        return f"centre {self.shift:.4g}, scale {self.scale:.4g}"

    def warning(self, value: Any) -> str:
        """Return which end of its range a number counts as."""
        return counts_as(value, self.low, self.high, "{:.6g}".format)


class NumericInput(ScaledNumber):
    """A column of numbers."""

    PLURAL: ClassVar[str] = "numeric columns"
    kind: Literal["numeric"] = "numeric"
    form: Literal["number"] = "number"
    source: str | None = Field(None, description="Of series: the column whose value `ahead` steps later it is.")
    ahead: int = 0

    @property
    def column(self) -> str:
        """The column of the data that it is made of."""
        return self.source or self.name

    def as_column(self) -> NumericInput:
        """Return the same input of data that hold it as a column."""
        return self.model_copy(update={"source": None, "ahead": 0})
