"""The equal rows of a table as a preparation keeps them; the server reads it, so it imports no Arrow."""

from __future__ import annotations

from pydantic import Field

from models.frozen_model import FrozenModel


class EqualRows(FrozenModel):
    """The equal rows of a table, and how many of them stand on both sides of the split."""

    num_rows: int = Field(description="Rows that equal another row.")
    identified: bool = Field(description="Whether the columns identify rows: equal ones are copies, no coincidence.")
    together: bool = Field(description="Whether equal rows are in one split.")
    num_in_training: int = Field(description="Test rows that equal a training or validation row.")
    num_test: int

    @property
    def share(self) -> float:
        """Share of the test rows that equal a training or validation row."""
        return self.num_in_training / max(1, self.num_test)

    @property
    def copies(self) -> float:
        """The same share if equal rows are copies, else 0."""
        return self.share if self.identified else 0.0

    @property
    def text(self) -> str:
        """What a reader of the card should know, in one line."""
        kind = "" if self.identified else "; the columns have too few values to tell rows apart"
        where = "in one split" if self.together else "apart"
        return f"{self.num_rows:,}, {where}; {self.share:.1%} of the test rows equal a training or validation row{kind}"
