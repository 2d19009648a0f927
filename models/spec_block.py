"""What every block of a spec is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Reference = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


class Block(BaseModel):
    """Base of every block: unknown keys are errors, values keep their types, nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
