"""Whether a number or a time is missing, as an input: its record."""

from __future__ import annotations

from typing import ClassVar, Literal

from models.inputs.record import DerivedInput


class GapInput(DerivedInput):
    """1 where a column has no value, else 0. The column's own input has a usual value there, which says nothing."""

    PLURAL: ClassVar[str] = "gaps of columns"
    kind: Literal["gap"] = "gap"
    rises: ClassVar[bool] = False

    @property
    def summary(self) -> str:
        """When it is 1."""
        return f"1 where {self.of} has no value"
