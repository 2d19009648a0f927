"""The base class and the common types of the spec's blocks."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

Reference = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


def number_as_text(value: object) -> object:
    """Return an integer as text, for text that YAML may read as a number; anything else as it is."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


NumberText = Annotated[str, BeforeValidator(number_as_text)]
"""Text that YAML may read as a number."""


class SpecBlock(BaseModel):
    """Base of all blocks: unknown keys are errors, types are strict, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
