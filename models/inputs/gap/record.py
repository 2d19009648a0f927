"""Whether a number or a time is missing, as an input: its record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from models.inputs.record import InputRecord


class GapInput(InputRecord):
    """1 where a column has no value, else 0. Its own input gets a usual value there, which says nothing."""

    PLURAL: ClassVar[str] = "gaps of columns"
    kind: Literal["gap"] = "gap"
    form: Literal["gap"] = "gap"
    of: str

    @property
    def width(self) -> int:
        """One column of the tensor `numeric`."""
        return 1

    @classmethod
    def owners(cls, parts: Sequence[Self]) -> list[str]:
        """Return the columns whose gaps they are: who changes a value changes its gap."""
        return [part.of for part in parts]

    @property
    def axis(self) -> int | None:
        """A single number has none."""
        return None

    @property
    def summary(self) -> str:
        """When it is 1."""
        return f"1 where {self.of} has no value"
