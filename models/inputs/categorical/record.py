"""A categorical input: its record."""

from __future__ import annotations

from typing import Literal

from models.inputs.record import InputRecord


class CategoricalInput(InputRecord):
    """A categorical input: index 0 is unseen or missing, index i + 1 is `categories[i]`.

    Values are compared as text; `dtype` is the type of the raw column (integers lose a trailing `.0`).
    """

    kind: Literal["categorical"] = "categorical"
    form: Literal["category"] = "category"
    categories: list[str]
    dtype: Literal["string", "integer", "boolean"] = "string"

    @property
    def cardinality(self) -> int:
        """Number of indices, including the index of unseen values."""
        return len(self.categories) + 1

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """One column of indices."""
        return (self.cardinality,)
