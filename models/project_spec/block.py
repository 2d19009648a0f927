"""The base class and the types of every block of a spec."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

Reference = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


def _number_as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


NumberText = Annotated[str, BeforeValidator(_number_as_text)]
"""A text that YAML reads as a number where it is one."""


class SpecBlock(BaseModel):
    """Base of every block: unknown keys are errors, values keep their types, nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
