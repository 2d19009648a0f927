"""Estimates all plans for a net on a cluster (memory, fit, seconds per step) and recommends one."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from models.planner.candidates import NAMES, Candidate, candidates, obstacle
from models.planner.duration import Duration, duration_of
from models.planner.machines import Cluster
from models.planner.memory import RankMemory, TrainingShape, memory_of
from models.planner.profile import Profiler

# Memory of the allocator, the kernels' workspaces and the libraries' buffers besides tensors: measured 10 to 13 % of
# resident memory on CPUs; a CUDA context and NCCL about 1.5 GB.
_SPARE = 0.12
_RUNTIME_GB = {"cuda": 1.5, "cpu": 0.4}
# Among plans within this factor of the fastest, the simplest is chosen: the estimate is not more precise.
_AS_QUICK = 1.05
_MOST_ACCUMULATE = 16


@dataclass(frozen=True)
class PlanEstimate:
    """The estimate of one plan. `obstacle` is the reason if it cannot run at all; then there are no figures."""

    candidate: Candidate
    obstacle: str = ""
    memory: RankMemory | None = None
    needed_gb: float = 0.0
    fits: bool = False
    duration: Duration | None = None
    samples_per_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        document: dict[str, Any] = {
            "overrides": self.candidate.overrides(),
            "fits": self.fits,
            "obstacle": self.obstacle,
        }
        if self.memory:
            document["memory_bytes"] = {**asdict(self.memory), "total": self.memory.total}
            document["needed_gb"] = round(self.needed_gb, 3)
        if self.duration:
            times = ("step_s", "compute_s", "bubble_s", "communicate_s")
            document |= {name: getattr(self.duration, name) for name in times}
            document |= {"sent_bytes": round(self.duration.sent_bytes), "samples_per_s": self.samples_per_s}
        return document


@dataclass(frozen=True)
class PlanningResult:
    """The result of planning for one net on one cluster.

    Attributes:
        estimates: First the plans that fit, fastest first; then those that do not fit; then those that cannot run.
        best: The recommended plan; None if no plan fits.
        reasons: The reasons, one sentence each.
        flops: FLOPs of one example, forward and backward; None if they cannot be counted.
    """

    machine: Cluster
    parameters: int
    flops: float | None
    estimates: list[PlanEstimate]
    best: PlanEstimate | None
    reasons: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "machine": self.machine.model_dump(),
            "parameters": self.parameters,
            "flops_per_example": self.flops,
            "plans": [estimate.as_json() for estimate in self.estimates],
            "recommended": self.best.candidate.overrides() if self.best else None,
            "reasons": self.reasons,
        }


def plan(profiler: Profiler, machine: Cluster, training: TrainingShape, base: Candidate) -> PlanningResult:
    """Estimate all candidates for the cluster's ranks and choose the best.

    Args:
        profiler: Profiler of the net, in the spec's precision.
        machine: The cluster.
        training: The spec's batch, precision and optimiser.
        base: The spec's accumulation, recomputation and pipeline.
    """
    flops = profiler.flops()
    estimates = _weighed(profiler, machine, training, base, flops)
    if not any(estimate.fits for estimate in estimates):
        for sparing in _sparing(profiler, base):
            estimates += [
                estimate for estimate in _weighed(profiler, machine, training, sparing, flops) if estimate.fits
            ]
    estimates = _one_of_each(sorted(estimates, key=_rank))
    best = _best(estimates)
    return PlanningResult(
        machine, profiler.weights().total, flops, estimates, best, _reasons(machine, training, estimates, best)
    )


def needed_gb(memory: RankMemory, machine: Cluster) -> float:
    """Return the memory that a device needs to run a plan safely, in 1e9 bytes."""
    return memory.total * (1 + _SPARE) / 1e9 + _RUNTIME_GB[machine.kind]


def _one_of_each(ranked: list[PlanEstimate]) -> list[PlanEstimate]:
    """Return the first of the estimates that differ only in how they save memory."""
    by_layout: dict[tuple[object, ...], PlanEstimate] = {}
    for estimate in ranked:
        layout = estimate.candidate
        by_layout.setdefault((layout.parallel, layout.ranks, layout.tensor, layout.stages, layout.replicas), estimate)
    return list(by_layout.values())


def _sparing(profiler: Profiler, base: Candidate) -> list[Candidate]:
    """Return ways to save memory with the same devices: smaller micro-batches, and recomputing the forward pass."""
    variants = []
    accumulate = base.accumulate
    while accumulate <= _MOST_ACCUMULATE:
        variants.append(replace(base, accumulate=accumulate))
        if profiler.num_blocks:
            variants.append(replace(base, accumulate=accumulate, recompute="full"))
        accumulate *= 2
    return variants[1:]


def _weighed(
    profiler: Profiler, machine: Cluster, training: TrainingShape, base: Candidate, flops: float | None
) -> list[PlanEstimate]:
    return [_estimate(profiler, machine, training, candidate, flops) for candidate in candidates(machine, base)]


def _estimate(
    profiler: Profiler, machine: Cluster, training: TrainingShape, candidate: Candidate, flops: float | None
) -> PlanEstimate:
    against = obstacle(candidate, profiler, training.batch)
    if against:
        return PlanEstimate(candidate, against)
    memory = memory_of(profiler, candidate, training, exact=machine.world_size == 1)
    needed, peak = needed_gb(memory, machine), machine.peak(training.precision)
    estimate = PlanEstimate(candidate, "", memory, needed, needed <= machine.memory_gb and _can_start(memory, machine))
    if flops is None or peak is None:
        return estimate
    duration = duration_of(profiler, candidate, training, machine, flops, peak)
    return replace(estimate, duration=duration, samples_per_s=training.batch / max(duration.step_s, 1e-12))


def _can_start(memory: RankMemory, machine: Cluster) -> bool:
    """Return whether what a rank builds first fits on a device, and that of all ranks of a node into its memory."""
    whole, host = memory.whole / 1e9, machine.host_memory_gb
    return whole <= machine.memory_gb and (host is None or machine.devices * whole <= host)


def _cannot_start(memory: RankMemory, machine: Cluster) -> str:
    host = f" and {machine.host_memory_gb:,.4g} GB of the node" if machine.host_memory_gb else ""
    return (
        f"Nothing can start: each of the {machine.devices} ranks of a node makes the whole net before a plan cuts it, "
        f"{memory.whole / 1e9:,.1f} GB each, of {machine.memory_gb:.3g} GB on a device{host}: take a smaller net."
    )


def _rank(estimate: PlanEstimate) -> tuple[bool, bool, float, int]:
    seconds = estimate.duration.step_s if estimate.duration else estimate.needed_gb
    return bool(estimate.obstacle), not estimate.fits, seconds, NAMES.index(estimate.candidate.parallel)


def _best(estimates: list[PlanEstimate]) -> PlanEstimate | None:
    fitting = [estimate for estimate in estimates if estimate.fits]
    if not fitting:
        return None
    quickest = fitting[0].duration.step_s if fitting[0].duration else None
    if quickest is None:
        return min(fitting, key=lambda estimate: (NAMES.index(estimate.candidate.parallel), -estimate.candidate.ranks))
    near = [estimate for estimate in fitting if estimate.duration and estimate.duration.step_s <= quickest * _AS_QUICK]
    return min(near, key=lambda estimate: (NAMES.index(estimate.candidate.parallel), estimate.candidate.ranks))


def _reasons(
    machine: Cluster, training: TrainingShape, estimates: list[PlanEstimate], best: PlanEstimate | None
) -> list[str]:
    if best is None:
        smallest = min(
            (estimate for estimate in estimates if estimate.memory),
            key=lambda estimate: estimate.needed_gb,
            default=None,
        )
        if smallest is None:
            return [f"No plan can be run: {estimates[0].obstacle}."]
        if smallest.memory and not _can_start(smallest.memory, machine):
            return [_cannot_start(smallest.memory, machine)]
        return [
            f"Nothing fits: the least is {smallest.candidate.parallel} with {smallest.needed_gb:,.1f} GB for each of "
            f"{smallest.candidate.ranks} ranks, of {machine.memory_gb:.3g} GB: take more devices, a smaller net or "
            "batch."
        ]
    reasons = [
        f"It needs {best.needed_gb:,.1f} of {machine.memory_gb:.3g} GB on each device"
        + (f" and takes {best.duration.step_s:.3g} s a step." if best.duration else ".")
    ]
    for name in ("ddp", "fsdp"):
        rival = next(
            (
                estimate
                for estimate in estimates
                if estimate.candidate.parallel == name and estimate.candidate.ranks > 1
            ),
            None,
        )
        if rival is not None and rival.candidate != best.candidate:
            reasons += _against(rival, best)
    duration = best.duration
    if duration and duration.exposed_s > duration.compute_s:
        reasons.append("It is bound by communication: a larger batch or a faster network would pay.")
    if duration is None:
        reasons.append(f"No times: no peak is known for {training.precision}, or the net could not be counted.")
    return reasons


def _against(rival: PlanEstimate, best: PlanEstimate) -> list[str]:
    if not rival.memory:
        return []
    name = f"{rival.candidate.parallel} over {rival.candidate.ranks} ranks"
    if not rival.fits:
        return [f"{name} needs {rival.needed_gb:,.1f} GB on each device: it does not fit."]
    if rival.duration and best.duration and rival.duration.step_s > best.duration.step_s * _AS_QUICK:
        ratio = rival.duration.step_s / best.duration.step_s
        return [
            f"{name} takes {ratio:.2g} times as long "
            f"({rival.duration.communicate_s:.2g} s of it is sending {rival.duration.sent_bytes / 1e9:.3g} GB)."
        ]
    return (
        [f"{name} is about as quick; {best.candidate.parallel} is simpler."]
        if (NAMES.index(best.candidate.parallel) < NAMES.index(rival.candidate.parallel))
        else []
    )
