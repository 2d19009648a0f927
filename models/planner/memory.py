"""Memory of one rank under a plan, in bytes.

W, G, O: weights, gradients, optimiser; A: activations. A single rank peaks at max(W + O + A', W + G + O), where A' is
the peak of the forward and the backward pass with gradients. DDP's buckets hold G all the time.
Source: Rajbhandari et al. 2020 (ZeRO) for what is sharded, Narayanan et al. 2021 for pipelines in flight; checked
against torch's MemTracker.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.planner.candidates import Candidate
from models.planner.profile import ActivationBytes, ParameterCounts, Profiler
from models.project_spec.blocks import Precision, Train
from models.training.optimisation.optimisers import state_ratio

_FULL = 4
_HALF = 2
# Of the activations in a CPU's heap, for the holes between them. Measured with glibc 2.36, seven nets in fp32 and bf16:
# 0.25 to 0.6. With all blocks mapped (MALLOC_MMAP_THRESHOLD_) there are none, and a step takes 1.5 times as long.
_HOLES = 0.4


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank at its peak.

    Attributes:
        activations: All memory of a micro-batch at the peak.
        gathered: Weights and gradients that sharding gathers temporarily.
        host: The copy of the best weights, in the memory of a CPU.
        holes: What a CPU's allocator holds between the tensors.
        whole: The whole net, which every rank builds before the plan splits it; its shard if ranks build in shards.
    """

    weights: int
    gradients: int
    optimiser: int
    activations: int
    gathered: int = 0
    host: int = 0
    holes: int = 0
    whole: int = 0

    @property
    def total(self) -> int:
        """The larger of all memory during training and the whole net before it."""
        constant = self.weights + self.gradients + self.optimiser + self.host
        return max(constant + self.activations + self.gathered + self.holes, self.whole)


@dataclass(frozen=True)
class TrainingShape:
    """The settings of the spec's `train` block that memory and time depend on.

    Attributes:
        batch: Examples of a step, over all ranks.
        precision: As in the spec, resolved.
        state_ratio: Bytes of optimiser state per byte of weights.
        shard_optimiser: Each rank of ddp keeps only its part of the state.
        on_cpu: Whether the copy of the best weights is in the same memory, and tensors come from the C library's heap.
    """

    batch: int
    precision: Precision = "fp32"
    state_ratio: float = 2.0
    shard_optimiser: bool = False
    on_cpu: bool = False

    @classmethod
    def of(cls, train: Train, on_cpu: bool) -> TrainingShape:
        """Return the settings of a spec's `train` block."""
        return cls(train.batch, train.precision, state_ratio(train), train.shard_optimiser, on_cpu)

    @property
    def compute_bytes(self) -> int:
        """Bytes of one number in matrix products and in their transfers."""
        return _HALF if self.precision in ("bf16", "fp16") else _FULL


def memory_of(profiler: Profiler, candidate: Candidate, training: TrainingShape, exact: bool = False) -> RankMemory:
    """Return the memory of the rank that needs most.

    Args:
        profiler: Profiler of the net.
        candidate: The plan.
        training: Batch, precision, optimiser.
        exact: For a single rank, trace exactly its micro-batch: gradients appear while activations are freed. Without
            it both count in full.
    """
    weights = profiler.weights(candidate.tensor)
    alone = exact and candidate.ranks == 1
    trace = profiler.exactly if alone else profiler.activations
    activations = trace(candidate.micro_batch(training.batch), candidate.tensor, candidate.recompute)
    if candidate.stages > 1:
        weights, stored_bytes = _stage(weights, activations, candidate)
    else:
        stored_bytes = activations.apart + activations.inputs
    size = _FULL * weights.total
    shards = candidate.shards
    shared_state = candidate.data if training.shard_optimiser and candidate.parallel.startswith("ddp") else shards
    state = round(training.state_ratio * size / shared_state)
    in_shards = profiler.is_deferred and candidate.parallel in ("fsdp", "hsdp") and candidate.ranks > 1
    whole = _FULL * profiler.weights().total // (candidate.shards if in_shards else 1) + weights.buffers
    host = _FULL * profiler.weights().total if training.on_cpu else 0
    if alone:
        stored_bytes = _beside_gradients(activations, size, training.on_cpu)
    return RankMemory(
        weights=size // shards + weights.buffers,
        gradients=size // shards,
        optimiser=state,
        activations=stored_bytes,
        gathered=_gathered(weights, training) if shards > 1 else 0,
        host=host,
        holes=_holes(activations, activations.apart + activations.inputs if alone else stored_bytes)
        if training.on_cpu
        else 0,
        whole=whole,
    )


def _beside_gradients(activations: ActivationBytes, gradients: int, on_cpu: bool) -> int:
    """Return the bytes that one rank's activations need in addition to all gradients.

    A gradient is allocated while the activations that it comes from are freed. It takes their place, but not in a CPU's
    heap, whose freed blocks have other sizes.
    """
    reused = max(activations.peak + activations.inputs - gradients, 0)
    share = activations.heap_share if on_cpu else 0.0
    return round(share * (activations.apart + activations.inputs) + (1 - share) * reused)


def _holes(activations: ActivationBytes, stored_bytes: int) -> int:
    """Return the bytes between the activations in the heap, as large ones are not in it."""
    return round(_HOLES * stored_bytes * activations.heap_share)


def _stage(weights: ParameterCounts, activations: ActivationBytes, candidate: Candidate) -> tuple[ParameterCounts, int]:
    """Return weights and activations of the largest stage, with the larger outer part and all its batches in flight."""
    blocks = -(-weights.num_blocks // candidate.stages)
    outside = max(weights.enter, weights.outside - weights.enter)
    flying = candidate.microbatches if candidate.pipeline == "gpipe" else min(candidate.microbatches, candidate.stages)
    ends = activations.saved - weights.num_blocks * activations.block
    stored = blocks * activations.block + ends + activations.hidden
    stored_bytes = flying * (stored + activations.inputs) + activations.transient
    return ParameterCounts(outside, min(weights.enter, outside), weights.block, blocks, weights.buffers), stored_bytes


def _gathered(weights: ParameterCounts, training: TrainingShape) -> int:
    """Return the bytes of gathered units: the current and the next one, and one's gradients before and in reduction."""
    unit = weights.block or weights.outside
    ahead = 2 * unit + weights.outside if weights.num_blocks else unit
    return ahead * training.compute_bytes + 2 * unit * _FULL
