"""The record of the test rows on which a version is furthest off, as it is stored with the version."""

from __future__ import annotations

from pydantic import Field

from models.frozen_model import FrozenModel

WORST_FILE = "worst.json"
Value = float | str | None


class WorstExample(FrozenModel):
    """A test row on which a version is far off."""

    row: int | None = Field(None, description="Its number in the source, from 1; None of series and texts.")
    loss: float
    truth: str = ""
    predicted: str = ""
    values: dict[str, Value] = Field(default_factory=dict, description="Its columns.")
    picture: str = Field("", description="A PNG, in base64.")


class WorstExamples(FrozenModel):
    """The worst test rows of a version, the worst first."""

    loss: str = Field(description="What the loss is, in words.")
    num_samples: int = Field(description="Test rows in all.")
    shows_rows: bool = Field(True, description="Whether the rows themselves are here.")
    examples: list[WorstExample]

    def without_rows(self) -> WorstExamples:
        """Return how far off each row is, without the rows."""
        examples = [WorstExample(loss=example.loss) for example in self.examples]
        return self.model_copy(update={"shows_rows": False, "examples": examples})
