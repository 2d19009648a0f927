"""The cost of a training job, or the sum over many jobs. Plain data, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field

from models.frozen_model import FrozenModel

_FLOPS_OF_A_DAY = 1e15 * 86_400

MEASURED = frozenset(
    {"samples_per_s", "tokens_per_s", "device_s", "data_wait_s", "peak_memory_mb", "flops", "mfu", "energy_j"}
)
"""The cost values of an epoch; all but `flops` differ between runs."""


class Costs(FrozenModel):
    """The cost of work on devices. A value that was not or cannot be measured is None, never zero or a guess."""

    device: str = Field("cpu", description="Kind of device: cpu, or the GPU's own name.")
    device_seconds: float = Field(
        0.0,
        description="CPU-seconds of the ranks, or GPUs x seconds; training and evaluation, over all restarts.",
    )
    flops: float | None = Field(None, description="Of matrix products and convolutions, forward and backward.")
    samples_per_s: float | None = Field(None, description="Over all ranks, evaluation not counted.")
    tokens_per_s: float | None = Field(None, description="For sequences of text.")
    mfu: float | None = Field(None, description="Share of the devices' peak that `flops` made use of.")
    peak_flops_per_s: float | None = Field(None, description="Of one rank's device: data sheet, or measured for a CPU.")
    peak_memory_mb: float | None = Field(None, description="Of the rank that had most: resident, or on its GPU.")
    data_wait_s: float | None = Field(None, description="Seconds that a step stood until its batch was there.")
    energy_j: float | None = Field(None, description="GPU counters, or the CPU package's where it can be read.")

    @property
    def petaflop_s_days(self) -> float | None:
        """FLOPs in petaflop/s-days of 8.64e19 FLOPs."""
        return None if self.flops is None else self.flops / _FLOPS_OF_A_DAY

    def figures(self) -> dict[str, float]:
        """Return all known values by name, for a metrics store."""
        values = self.model_dump(exclude={"device"}, exclude_none=True)
        return values if self.petaflop_s_days is None else {**values, "petaflop_s_days": self.petaflop_s_days}


def of_epochs(epochs: Sequence[Mapping[str, float]], device: str, peak_flops_per_s: float | None = None) -> Costs:
    """Return the costs of one job from the reported values of its epochs."""
    return Costs(
        device=device,
        device_seconds=_sum(epochs, "device_s") or 0.0,
        flops=_sum(epochs, "flops"),
        samples_per_s=_mean_rate(epochs, "samples_per_s"),
        tokens_per_s=_mean_rate(epochs, "tokens_per_s"),
        mfu=_mean_rate(epochs, "mfu"),
        peak_flops_per_s=peak_flops_per_s,
        peak_memory_mb=max((epoch["peak_memory_mb"] for epoch in epochs if "peak_memory_mb" in epoch), default=None),
        data_wait_s=_sum(epochs, "data_wait_s"),
        energy_j=_sum(epochs, "energy_j"),
    )


def total(parts: Iterable[Costs | None]) -> Costs:
    """Return the sum over jobs, without rates; the memory is the largest peak.

    FLOPs and energy are None unless every job has them.
    """
    measured = [part for part in parts if part is not None]
    flops, energy = [part.flops for part in measured], [part.energy_j for part in measured]
    memory = [part.peak_memory_mb for part in measured if part.peak_memory_mb is not None]
    wait = [part.data_wait_s for part in measured if part.data_wait_s is not None]
    return Costs(
        device=", ".join(sorted({part.device for part in measured})),
        device_seconds=sum(part.device_seconds for part in measured),
        flops=None if not measured or None in flops else sum(value or 0.0 for value in flops),
        peak_memory_mb=max(memory, default=None),
        data_wait_s=sum(wait) if wait else None,
        energy_j=None if not measured or None in energy else sum(value or 0.0 for value in energy),
    )


def of_results(search: Mapping[str, Any], train: Mapping[str, Any]) -> dict[str, Costs]:
    """Return the costs of a model from the results of its steps: `search`, `train` and their sum, `total`."""
    parts = {
        name: Costs.model_validate(result["costs"])
        for name, result in (("search", search), ("train", train))
        if result.get("costs")
    }
    return {**parts, "total": total(parts.values())} if parts else {}


def _sum(epochs: Sequence[Mapping[str, float]], name: str) -> float | None:
    """Return the sum of a value; None unless every epoch has it."""
    return sum(epoch[name] for epoch in epochs) if epochs and all(name in epoch for epoch in epochs) else None


def _mean_rate(epochs: Sequence[Mapping[str, float]], name: str) -> float | None:
    """Return the rate over epochs of the same size: the harmonic mean of their rates."""
    if not epochs or not all(epoch.get(name, 0.0) > 0 for epoch in epochs):
        return None
    return len(epochs) / sum(1 / epoch[name] for epoch in epochs)
