"""The plans there are for the ranks of a cluster, by the names of `train.parallel`, and what forbids one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from models.distributed.order import LEAST_A_RANK
from models.planner.machines import Cluster
from models.planner.profile import Profiler, Recompute

# Simplest first: of plans that are equally quick the first is taken.
NAMES = ("ddp", "fsdp", "hsdp", "tp", "pp", "fsdp+tp", "ddp+tp", "fsdp+pp", "ddp+pp")


@dataclass(frozen=True)
class Candidate:
    """One plan: `data` x `tensor` x `stages` ranks.

    Attributes:
        replicas: Groups that hold the whole net, for hsdp.
        microbatches: Microbatches of a pipeline, for each accumulation.
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

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.data * self.tensor * self.stages

    @property
    def shards(self) -> int:
        """Ranks that the weights are cut over by fully sharded data parallelism."""
        if "fsdp" in self.parallel:
            return self.data
        return self.data // self.replicas if self.parallel == "hsdp" else 1

    def micro_batch(self, batch: int) -> int:
        """Examples that one rank has in hand at once, of the larger slices."""
        return -(-batch // (self.data * self.accumulate * self.microbatches))

    def overrides(self) -> dict[str, str]:
        """The spec's keys that ask for it."""
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
    """Every plan that uses all devices of `machine`; and one rank by itself.

    Args:
        machine: The cluster.
        base: Gives accumulation, recomputation and the kind of pipeline.
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
    # Ranks that share a layer talk twice a block, so they stay within a node.
    for tensor in _divisors(machine.devices):
        yield from _joined(replace(base, parallel="tp", tensor=tensor), world // tensor)
    for stages in _divisors(world):
        micro = base.microbatches if base.microbatches > 1 else 2 * stages
        yield from _joined(replace(base, parallel="pp", stages=stages, microbatches=micro), world // stages)


def obstacle(candidate: Candidate, profiler: Profiler, batch: int) -> str:
    """Why a plan cannot be run at all; empty when it can."""
    if candidate.tensor > 1 and not profiler.tensor_parts:
        return "the net does not say how its layers may be shared (tensor_plan)"
    if candidate.tensor > 1 and profiler.tensor_parts % candidate.tensor:
        return f"{candidate.tensor} ranks do not divide the net's {profiler.tensor_parts} parts"
    if candidate.stages > 1 and not profiler.num_blocks:
        return "the net names no blocks to cut between (blocks, enter, leave)"
    if candidate.stages > max(1, profiler.num_blocks):
        return f"{profiler.num_blocks} blocks make no {candidate.stages} stages"
    least = LEAST_A_RANK * candidate.data * candidate.accumulate * candidate.microbatches
    return f"train.batch is {batch}, at least {least} are needed" if batch < least else ""


def _joined(inner: Candidate, data: int) -> Iterator[Candidate]:
    """A plan by itself, or beside each kind of data parallelism."""
    if data == 1:
        yield inner
        return
    for outer in ("fsdp", "ddp"):
        yield replace(inner, parallel=f"{outer}+{inner.parallel}", data=data)


def _divisors(count: int) -> list[int]:
    return [one for one in range(2, count + 1) if count % one == 0]
