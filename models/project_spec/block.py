"""The base class and the common types of the spec's blocks."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

Reference = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


def number_as_text(value: object) -> object:
    """Return an integer as text, for text that YAML may read as a number; anything else as it is."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


NumberText = Annotated[str, BeforeValidator(number_as_text)]
"""Text that YAML may read as a number."""


def _one_or_several(value: str | list[str]) -> str | list[str]:
    if not value or (isinstance(value, list) and (not all(value) or len(set(value)) < len(value))):
        raise ValueError(f"got {value!r}, expected the name of a column, or of several different ones")
    if isinstance(value, list) and len(value) == 1:
        raise ValueError(f"got a list of one column: write its name alone, `{value[0]}`")
    return value


Names = Annotated[str | list[str], AfterValidator(_one_or_several)]
"""The name of a column, or a list of several different names."""


class SpecBlock(BaseModel):
    """Base of all blocks: unknown keys are errors, types are strict, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
