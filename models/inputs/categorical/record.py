"""A categorical input: its record."""

from __future__ import annotations

from typing import ClassVar, Literal

from models.inputs.record import CategoryRecord


class CategoricalInput(CategoryRecord):
    """A categorical input: index 0 is unseen or missing, index i + 1 is `categories[i]`."""

    PLURAL: ClassVar[str] = "categorical columns"
    kind: Literal["categorical"] = "categorical"

    @property
    def cardinality(self) -> int:
        """Number of indices, including the index of unseen values."""
        return len(self.categories) + 1

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """One column of indices."""
        return (self.cardinality,)
