"""Release rules of a spec: canary of a promoted version, and automatic rollback."""

from __future__ import annotations

from pydantic import Field

from models.project_spec.block import Fraction, SpecBlock


class CanaryRule(SpecBlock):
    """A newly promoted version answers a share first, the same callers each time, and all of them later."""

    share: Fraction = Field(description="Share of the requests, by the hash of the caller's id.")
    minutes: float = Field(60.0, gt=0, description="Minutes until it answers all requests.")


class ReturnOn(SpecBlock):
    """When the server rolls a version or a canary back by itself; null: never for that reason."""

    errors: Fraction | None = Field(0.05, description="Share of answers that fail in the model itself.")
    latency_ms: float | None = Field(
        None,
        gt=0,
        description="More than 5 % of the answers take longer than this for a row, in the model; requests answered "
        "together share their call.",
    )
    metric: bool = Field(
        True, description="Its realised metric decayed as monitoring sees it, and that of the one before had not."
    )
