"""The `serve` block of a spec: how its model is served, and limits on its latency and its loss of quality."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError, field_validator

from models.files import read_json
from models.project_spec.block import Fraction, SpecBlock

SPEC_JSON = "spec.json"
Variant = Literal["int8_dynamic"]
BEFORE_SERVING = (("serve", "variants"), ("train", "gradient_hook"), ("train", "pipeline"))
"""Keys that act before a version is registered, and of which a release has taken values away."""


class CanaryRule(SpecBlock):
    """A newly promoted version answers a share of the requests first, for the same callers each time, and all later."""

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


class PredictionLogging(SpecBlock):
    """What is logged of served predictions."""

    share: float = Field(
        1.0, gt=0, le=1, description="Share of the predicted rows that are logged, chosen by the hash of the id."
    )
    redact: list[str] = Field(
        default_factory=list,
        description="Columns that are never logged, so they are neither monitored nor trained on from feedback.",
    )
    when_full: Literal["refuse", "answer"] = Field(
        "refuse", description="If the log cannot be written: reject requests (503), or answer without a record."
    )


class Serve(SpecBlock):
    """How the model is served: its limits, and the smaller variants that are tried at export."""

    max_latency_ms: float | None = Field(
        None, gt=0, description="Limit of the latency: one row, one thread, ONNX Runtime, p50."
    )
    max_metric_loss: float | None = Field(
        None,
        ge=0,
        description="What a smaller variant may lose of the goal's metric, on validation rows; "
        "0: only one with the very same predictions is served instead of fp32. Default: half of the metric's "
        "standard error there, 0 for fewer than 200 rows.",
    )
    variants: list[Variant] = Field(
        default_factory=lambda: list(get_args(Variant)),
        description="Made and measured at export, beside fp32; the smallest that passes and is not slower is served.",
    )
    up: bool = Field(False, description="`loopline up` serves the champion too.")
    canary: CanaryRule | None = Field(
        None, description="Send a promoted version a growing share of the requests (canary). null: all at once."
    )
    shadow: bool = Field(
        False, description="Shadow: the registry's challenger predicts the logged requests in the background."
    )
    return_on: ReturnOn = Field(default_factory=ReturnOn)
    log: PredictionLogging = Field(default_factory=PredictionLogging)

    @field_validator("variants")
    @classmethod
    def _each_once(cls, variants: list[Variant]) -> list[Variant]:
        for name in variants:
            if variants.count(name) > 1:
                raise ValueError(f"{name} is named twice: name it once")
        return variants


def spec_of_version(path: Path) -> dict[str, Any]:
    """Return the keys of a version's spec, an earlier release's included; those of `BEFORE_SERVING` are left out.

    Empty if the file is missing or damaged.
    """
    document = read_json(path)
    for block, key in BEFORE_SERVING:
        if isinstance(keys := document.get(block), dict):
            keys.pop(key, None)
    return document


def serve_rules_of(folder: Path) -> Serve:
    """The `serve` block of a version's spec; the defaults where it has none that can be read.

    Versions from before the spec travelled with its hash have none; one that a later Loopline wrote may not be read.
    """
    path = folder / SPEC_JSON
    try:
        return _read_serve(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return Serve()


@functools.lru_cache(maxsize=64)
def _read_serve(path: Path, _: int) -> Serve:
    try:
        return Serve.model_validate(spec_of_version(path).get("serve", {}))
    except ValidationError:
        return Serve()
