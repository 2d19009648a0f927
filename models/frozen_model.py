"""The base of all plain data that is stored or sent as JSON."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """Data that does not change; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
