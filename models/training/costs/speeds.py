"""The share of its peak that a device reached with a kind of net, learnt from finished jobs. Plain data, without torch.

What one job measured helps the next: the planner takes the share for its times, and `compile: auto` what compiling
cost and gained.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from pydantic import Field

from models.frozen_model import FrozenModel


class MeasuredSpeed(FrozenModel):
    """What one job measured, for one device, precision and net, compiled or not."""

    device: str = Field(description="The GPU's name, or the processor's.")
    precision: str
    net: str = Field(description="Name in the catalogue, or the reference of an own net.")
    compiled: bool = False
    mfu: float = Field(gt=0, allow_inf_nan=False, description="Share of the peak, of the job's fastest epoch.")
    compile_s: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Seconds that compiling took before the first step."
    )
    ranks: int = Field(1, ge=1)


class Efficiency(FrozenModel):
    """A share of the peak and the jobs that it was learnt from."""

    share: float
    num_jobs: int

    def origin(self, device: str, precision: str, net: str) -> str:
        """Return the origin in words."""
        jobs = f"{self.num_jobs} job{'s' * (self.num_jobs > 1)}"
        return f"learnt from {jobs} with {net} in {precision} on {device}"


def measured_speeds(
    epochs: Sequence[Mapping[str, float]], first_compiled: float, speed: MeasuredSpeed
) -> list[MeasuredSpeed]:
    """Return what a job measured: its fastest epoch before it was compiled, and its fastest one afterwards.

    Args:
        epochs: The reported values of its epochs.
        first_compiled: The epoch, from 0, in which compiled steps began, as a number with a fraction; infinite if none
            did. An epoch with both kinds of steps, and the first one of several, which warms up, count nothing.
        speed: The device, the precision and the net, with any `mfu`.
    """
    warm = list(enumerate(epochs))[1 if len(epochs) > 1 else 0 :]
    sides = {
        False: [epoch.get("mfu", 0.0) for index, epoch in warm if index + 1 <= first_compiled],
        True: [epoch.get("mfu", 0.0) for index, epoch in warm if index > first_compiled],
    }
    return [
        speed.model_copy(
            update={"compiled": compiled, "mfu": max(rates), "compile_s": speed.compile_s if compiled else None}
        )
        for compiled, rates in sides.items()
        if max(rates, default=0.0) > 0
    ]


def efficiency_of(
    speeds: Sequence[MeasuredSpeed], device: str, precision: str, net: str, compiled: bool = False
) -> Efficiency | None:
    """Return the median share of the peak in these jobs; None without any."""
    shares = [speed.mfu for speed in _alike(speeds, device, precision, net) if speed.compiled == compiled]
    return Efficiency(share=statistics.median(shares), num_jobs=len(shares)) if shares else None


def compile_facts(
    speeds: Sequence[MeasuredSpeed], device: str, precision: str, net: str
) -> tuple[float | None, float | None]:
    """Return by what factor compiling made these jobs faster, and its median seconds; None for what is not known."""
    alike = _alike(speeds, device, precision, net)
    compiled, plain = ([speed.mfu for speed in alike if speed.compiled == side] for side in (True, False))
    costs = [speed.compile_s for speed in alike if speed.compile_s is not None]
    gain = statistics.median(compiled) / statistics.median(plain) if compiled and plain else None
    return gain, statistics.median(costs) if costs else None


def _alike(speeds: Sequence[MeasuredSpeed], device: str, precision: str, net: str) -> list[MeasuredSpeed]:
    return [speed for speed in speeds if (speed.device, speed.precision, speed.net) == (device, precision, net)]
