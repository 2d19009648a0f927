"""The possible plans for the ranks of a cluster, by the names of `train.parallel`, and the obstacles to each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from models.distributed.order import LEAST_A_RANK
from models.planner.machines import Cluster
from models.planner.profile import Profiler, Recompute
from models.project_spec.blocks import Train

# Simplest first: among equally fast plans the first is chosen.
NAMES = ("ddp", "fsdp", "hsdp", "tp", "pp", "fsdp+tp", "ddp+tp", "fsdp+pp", "ddp+pp")


@dataclass(frozen=True)
class Candidate:
    """One plan: `data` x `tensor` x `stages` ranks.

    Attributes:
        replicas: Groups that hold the whole net, for hsdp.
        microbatches: Micro-batches of a pipeline in each accumulation step.
    """

    parallel: str
    data: int = 1
    tensor: int = 1
    stages: int = 1
    replicas: int = 1
    accumulate: int = 1
    microbatches: int = 1
    pipeline: str = "1f1b"
    recompute: Recompute = "none"

    @classmethod
    def of(cls, train: Train) -> Candidate:
        """Return the settings that every plan takes from a spec's `train` block."""
        return cls(
            parallel="ddp",
            accumulate=train.accumulate,
            microbatches=train.microbatches or 1,
            pipeline=train.pipeline,
            recompute=train.recompute,
        )

    @property
    def ranks(self) -> int:
        """The number of all ranks."""
        return self.data * self.tensor * self.stages

    @property
    def shards(self) -> int:
        """The number of ranks over which fully sharded data parallelism splits the weights."""
        if "fsdp" in self.parallel:
            return self.data
        return self.data // self.replicas if self.parallel == "hsdp" else 1

    def micro_batch(self, batch: int) -> int:
        """Return the examples that one rank processes at once, in the larger slices."""
        return -(-batch // (self.data * self.accumulate * self.microbatches))

    def overrides(self) -> dict[str, str]:
        """Return the spec keys that set this plan."""
        settings = {"train.parallel": self.parallel, "train.ranks": str(self.ranks)}
        if self.tensor > 1:
            settings["train.tensor"] = str(self.tensor)
        if self.stages > 1:
            settings |= {"train.stages": str(self.stages), "train.microbatches": str(self.microbatches)}
        if self.parallel == "hsdp":
            settings["train.replicas"] = str(self.replicas)
        if self.recompute != "none":
            settings["train.recompute"] = self.recompute
        if self.accumulate > 1:
            settings["train.accumulate"] = str(self.accumulate)
        return settings


def candidates(machine: Cluster, base: Candidate) -> Iterator[Candidate]:
    """Yield every plan that uses all devices of `machine`, and a plan with a single rank.

    Args:
        machine: The cluster.
        base: Sets accumulation, recomputation and the kind of pipeline.
    """
    world = machine.world_size
    yield replace(base, parallel="ddp", data=1)
    if world == 1:
        return
    for name in ("ddp", "fsdp"):
        yield replace(base, parallel=name, data=world)
    groups = machine.nodes if machine.nodes > 1 else 2
    if world // groups > 1:
        yield replace(base, parallel="hsdp", data=world, replicas=groups)
    # Ranks that share a layer communicate twice per block, so they stay within a node.
    for tensor in _divisors(machine.devices):
        yield from _joined(replace(base, parallel="tp", tensor=tensor), world // tensor)
    for stages in _divisors(world):
        micro = base.microbatches if base.microbatches > 1 else 2 * stages
        yield from _joined(replace(base, parallel="pp", stages=stages, microbatches=micro), world // stages)


def obstacle(candidate: Candidate, profiler: Profiler, batch: int) -> str:
    """Return why a plan cannot run at all; an empty string if it can."""
    if candidate.tensor > 1 and not profiler.tensor_parts:
        return "the net does not say how its layers may be shared (tensor_plan)"
    if candidate.tensor > 1 and profiler.tensor_parts % candidate.tensor:
        return f"{candidate.tensor} ranks do not divide the net's {profiler.tensor_parts} parts"
    if candidate.stages > 1 and not profiler.num_blocks:
        return "the net names no blocks to cut between (blocks, enter, leave)"
    if candidate.stages > max(1, profiler.num_blocks):
        return f"{profiler.num_blocks} blocks make no {candidate.stages} stages"
    min_batch = LEAST_A_RANK * candidate.data * candidate.accumulate * candidate.microbatches
    return f"train.batch is {batch}, at least {min_batch} are needed" if batch < min_batch else ""


def _joined(inner: Candidate, data: int) -> Iterator[Candidate]:
    """Yield a plan alone, or combined with each kind of data parallelism."""
    if data == 1:
        yield inner
        return
    for outer in ("fsdp", "ddp"):
        yield replace(inner, parallel=f"{outer}+{inner.parallel}", data=data)


def _divisors(count: int) -> list[int]:
    return [divisor for divisor in range(2, count + 1) if count % divisor == 0]
