"""Estimates the duration of one optimiser step: computation at an assumed share of the peak, and communication.

Bytes on the wire for each rank and step, with G gradients, P parameters, H the tensor between blocks, n ranks:
ddp 2 (n-1)/n G; fsdp 3 (n-1)/n P for each accumulation; tp 8 (n-1)/n H for each block; pp 2 H for each boundary, and a
bubble of (p-1)/(m+p-1) of the time. Source: Narayanan et al. 2021, Rajbhandari et al. 2020, Zhao et al. 2023 (FSDP).
These are computed values, not measured on such machines: they serve to choose a plan, not to predict seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.planner.candidates import Candidate
from models.planner.machines import Cluster
from models.planner.memory import TrainingShape
from models.planner.profile import Profiler

_FULL = 4
_BUCKET = 25e6
_FORWARD_AND_BACKWARD = 3
_WITH_RECOMPUTE = 4
# Gradient communication overlaps only with the backward pass, two thirds of the computation.
_BACKWARD = 2 / 3


@dataclass(frozen=True)
class Duration:
    """Seconds of one step.

    Attributes:
        compute_s: Computation of the busiest rank, without the bubble.
        bubble_s: Waiting times between the stages of a pipeline.
        communicate_s: All communication, including the part that overlaps with computation.
        exposed_s: The communication that does not overlap.
        sent_bytes: Bytes that each rank sends.
    """

    compute_s: float
    bubble_s: float
    communicate_s: float
    exposed_s: float
    sent_bytes: float

    @property
    def step_s(self) -> float:
        """Seconds from one step to the next."""
        return self.compute_s + self.bubble_s + self.exposed_s


@dataclass(frozen=True)
class _Traffic:
    size: float
    seconds: float


def duration_of(
    profiler: Profiler, candidate: Candidate, training: TrainingShape, machine: Cluster, flops: float, peak: float
) -> Duration:
    """Estimate the duration of one step.

    Args:
        profiler: Profiler of the net.
        candidate: The plan.
        training: Batch and precision.
        machine: The cluster with its links.
        flops: FLOPs of one example, forward and backward.
        peak: FLOP/s of one device in this precision.
    """
    work = flops * (_WITH_RECOMPUTE / _FORWARD_AND_BACKWARD if candidate.recompute == "full" else 1)
    compute = work * training.batch / candidate.ranks / (peak * machine.efficiency)
    bubble = compute * (candidate.stages - 1) / candidate.microbatches
    hidden = _data(profiler, candidate, training, machine)
    open_ = _tensor(profiler, candidate, training, machine) + _pipeline(profiler, candidate, training, machine)
    room = compute * (1 if candidate.shards > 1 else _BACKWARD)
    exposed = sum(part.seconds for part in open_) + max(0.0, sum(part.seconds for part in hidden) - room)
    parts = hidden + open_
    return Duration(compute, bubble, sum(part.seconds for part in parts), exposed, sum(part.size for part in parts))


def _data(profiler: Profiler, candidate: Candidate, training: TrainingShape, machine: Cluster) -> list[_Traffic]:
    """Return the traffic of data parallelism: gradients, and the weights of shards."""
    parameters = profiler.weights(candidate.tensor).total / candidate.stages
    spans_nodes = candidate.ranks > machine.devices
    if candidate.data == 1:
        return []
    if candidate.shards == 1:
        return [_ring(2 * _FULL * parameters, candidate.data, machine, spans_nodes, _FULL * parameters / _BUCKET + 1)]
    calls = 3 * (profiler.num_blocks / candidate.stages + 1) * candidate.accumulate
    weights = 3 * training.compute_bytes * parameters * candidate.accumulate
    within_node = candidate.parallel == "hsdp" and candidate.shards <= machine.devices
    sharded = _ring(weights, candidate.shards, machine, spans_nodes and not within_node, calls)
    if candidate.replicas == 1:
        return [sharded]
    mine = 2 * _FULL * parameters / candidate.shards
    return [sharded, _ring(mine, candidate.replicas, machine, spans_nodes, mine / _BUCKET + 1)]


def _tensor(profiler: Profiler, candidate: Candidate, training: TrainingShape, machine: Cluster) -> list[_Traffic]:
    """Return the traffic of tensor parallelism: two sums per block forward, two backward, each twice round the ring."""
    if candidate.tensor == 1:
        return []
    micro = candidate.micro_batch(training.batch)
    hidden = profiler.activations(micro, candidate.tensor).hidden
    steps, blocks = candidate.accumulate * candidate.microbatches, max(1, profiler.num_blocks // candidate.stages)
    return [_ring(8 * hidden * blocks * steps, candidate.tensor, machine, False, 4 * blocks * steps)]


def _pipeline(profiler: Profiler, candidate: Candidate, training: TrainingShape, machine: Cluster) -> list[_Traffic]:
    """Return the traffic between pipeline stages, forward and backward."""
    if candidate.stages == 1:
        return []
    hidden = profiler.activations(candidate.micro_batch(training.batch), candidate.tensor).hidden
    steps = candidate.accumulate * candidate.microbatches
    size = 2 * hidden * steps
    bandwidth = _bandwidth(machine, candidate.ranks > machine.devices)
    return [_Traffic(size, size / bandwidth + 2 * steps * machine.latency_s)]


def _ring(size: float, ranks: int, machine: Cluster, spans_nodes: bool, calls: float) -> _Traffic:
    sent = size * (ranks - 1) / ranks
    return _Traffic(sent, sent / _bandwidth(machine, spans_nodes) + calls * machine.latency_s)


def _bandwidth(machine: Cluster, spans_nodes: bool) -> float:
    return (machine.between_gb_per_s if spans_nodes else machine.within_gb_per_s) * 1e9
