"""The `judge` block: how a challenger is compared with the champion."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from models.project_spec.block import SpecBlock, Whole

TimeUnit = Literal["hour", "day", "week", "month"]


class Judge(SpecBlock):
    """How a challenger is compared with the champion on the frozen test rows."""

    test: Literal["bootstrap", "mcnemar"] = Field(
        "bootstrap",
        description="mcnemar: for goal.metric accuracy; of test rows that depend on each other, the bootstrap decides.",
    )
    mode: Literal["superiority", "noninferiority"] = Field(
        "noninferiority", description="noninferiority: not worse by more than the margin; superiority: better."
    )
    margin: float | None = Field(
        None,
        ge=0,
        description="In the metric's unit. superiority: the challenger must win by more (default 0). non-inferiority: "
        "it may lose by up to this. Default: what the test set can resolve; an equal model passes in 80 % of loops.",
    )
    unit: TimeUnit | None = Field(
        None,
        description="Calendar unit that is resampled as a whole, of a table split by time. Default: day, or a shorter "
        "one if there are fewer than five days.",
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Of the interval of the gain.")
    resamples: Whole = Field(
        1000,
        ge=100,
        le=1_000_000,
        description="Samples of the bootstrap; the time grows with them. Many independent rows need none.",
    )
    min_samples: Whole = Field(30, ge=1, description="No promotion with fewer test examples than this.")
    promotion: Literal["anyone", "loopline"] = Field(
        "anyone",
        description="Who may move the champion. anyone: a move in MLflow counts; loopline: it is put back, "
        "and an event says so.",
    )
    slices: list[str] = Field(
        default_factory=list,
        description="Columns; each value is a slice that is judged by itself.",
        json_schema_extra={"uniqueItems": True},
    )
    slice_margin: float | None = Field(
        None, ge=0, description="How much a slice may lose against the champion. Default: no limit."
    )
    max_latency_ms: float | None = Field(None, gt=0, description="One row, one thread, ONNX Runtime, p50.")
    max_size_mb: float | None = Field(None, gt=0, description="Of the exported file; a larger model is refused.")

    @field_validator("slices")
    @classmethod
    def _each_once(cls, slices: list[str]) -> list[str]:
        twice = next((name for name in slices if slices.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"got {twice!r} twice, expected each column once: remove one")
        return slices
