"""Parallel dimensions: computes the arrangement of ranks from their plan and number, without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from models.errors import UsageError

# Outermost to innermost: neighbouring ranks share layers and communicate most; pipeline stages communicate least.
DIMENSIONS = ("pipeline", "replicate", "shard", "tensor")


@dataclass(frozen=True)
class ParallelDims:
    """The number of ranks along each dimension; every rank has one place along each dimension.

    Attributes:
        pipeline: Groups of consecutive layers.
        replicate: Groups that each hold the whole net.
        shard: Ranks that divide parameters, gradients and optimiser state among them.
        tensor: Ranks that share every layer.
        plan: The spec's `train.parallel`, or `one` for a single process.
        microbatches: Pieces of a batch in the pipeline.
    """

    pipeline: int = 1
    replicate: int = 1
    shard: int = 1
    tensor: int = 1
    plan: str = "one"
    microbatches: int = 1

    @classmethod
    def of(
        cls, plan: str, size: int, tensor: int | None = None, stages: int | None = None, replicas: int | None = None
    ) -> ParallelDims:
        """Return the arrangement of `size` ranks.

        Args:
            plan: The spec's `train.parallel`.
            size: The number of ranks.
            tensor: Ranks that share every layer; by default all or two.
            stages: Groups of consecutive layers; by default all ranks or two.
            replicas: Groups that each hold the whole net, for hsdp.

        Raises:
            UsageError: The ranks cannot be divided in this way; the message names numbers that work.
        """
        if size == 1:
            return cls()
        names = plan.split("+")
        inner = {
            "tensor": _inner(tensor, "tensor", "tp" in names, size, len(names) == 1),
            "pipeline": _inner(stages, "stages", "pp" in names, size, len(names) == 1),
        }
        data = size // math.prod(inner.values())
        if "hsdp" in names:
            outer = _replicas(replicas, size)
            inner |= {"replicate": outer, "shard": data // outer}
        else:
            inner["shard" if "fsdp" in names else "replicate"] = data
        return cls(**inner, plan=plan)

    def pipelined(self, schedule: str, batch: int, accumulate: int, microbatches: int | None) -> ParallelDims:
        """Return the arrangement with the pieces of a batch, if it has a pipeline.

        Args:
            schedule: The spec's `train.pipeline`.
            batch: Examples of one optimiser step.
            accumulate: Batches whose gradients make one step.
            microbatches: Pieces of a batch; by default two for each stage.

        Raises:
            UsageError: A batch cannot be divided in this way.
        """
        if self.pipeline == 1:
            return self
        return replace(self, microbatches=_microbatches(self, schedule, batch, accumulate, microbatches))

    @property
    def size(self) -> int:
        """The number of all ranks."""
        return self.pipeline * self.replicate * self.shard * self.tensor

    @property
    def data_size(self) -> int:
        """The number of groups of ranks with different examples."""
        return self.replicate * self.shard

    def place(self, rank: int) -> dict[str, int]:
        """Return a rank's place along each dimension."""
        coordinates = {}
        for name in reversed(DIMENSIONS):
            rank, coordinates[name] = divmod(rank, getattr(self, name))
        return coordinates

    def data_rank(self, rank: int) -> int:
        """Return the index of a rank's share of the examples."""
        place = self.place(rank)
        return place["replicate"] * self.shard + place["shard"]

    def is_output_rank(self, rank: int) -> bool:
        """Return whether a rank's loss and outputs count: one rank of each group with the same examples."""
        place = self.place(rank)
        return place["tensor"] == 0 and place["pipeline"] == self.pipeline - 1

    def output_ranks(self) -> list[int]:
        """Return the output ranks, in the order of their shares of the examples."""
        return sorted((rank for rank in range(self.size) if self.is_output_rank(rank)), key=self.data_rank)


def _inner(setting: int | None, key: str, is_asked_for: bool, size: int, alone: bool) -> int:
    if not is_asked_for:
        return 1
    count = setting if setting is not None else size if alone else 2
    if alone and count != size:
        raise UsageError(f"train.{key}: got {count} with {size} ranks, expected {size}: leave it out, or add ddp+")
    if size % count or count < 2 or (not alone and count == size):
        fitting = [n for n in range(2, size + (1 if alone else 0)) if size % n == 0]
        cure = f"expected one of {', '.join(map(str, fitting))}" if fitting else "expected 4 ranks or more"
        raise UsageError(f"train.{key}: got {count} with {size} ranks, {cure}")
    return count


def _replicas(setting: int | None, size: int) -> int:
    """Return the number of groups: by default two if each then has two or more ranks for sharding, else one."""
    count = setting if setting is not None else 2 if size >= 4 and size % 2 == 0 else 1
    if size % count:
        fitting = ", ".join(str(n) for n in range(1, size + 1) if size % n == 0)
        raise UsageError(f"train.replicas: got {count} with {size} ranks, expected one of {fitting}")
    return count


def _microbatches(dims: ParallelDims, schedule: str, batch: int, accumulate: int, setting: int | None) -> int:
    """Return the pieces of a batch: by default two per stage, so that at most a third of the time is idle.

    Source: the idle share of a pipeline of p stages and m pieces is (p - 1) / (m + p - 1), Huang et al. 2019.
    """
    max_pieces = batch // (dims.data_size * accumulate)
    if setting is None:
        return max(dims.pipeline, min(2 * dims.pipeline, max_pieces // dims.pipeline * dims.pipeline))
    if setting > max_pieces:
        raise UsageError(
            f"train.microbatches: got {setting}, but a rank has only {max_pieces} examples a step (train.batch "
            f"{batch} / "
            f"{dims.data_size} / {accumulate}): take at most {max_pieces}, or a larger train.batch"
        )
    if schedule == "1f1b" and setting < dims.pipeline:
        raise UsageError(f"train.microbatches: got {setting}, expected at least {dims.pipeline}, one for each stage")
    return setting


def check_gpus(ranks: int, gpus: int, where: str) -> None:
    """Refuse more ranks on a machine than it has GPUs: NCCL lets no two ranks share one.

    Raises:
        UsageError: There are more ranks than GPUs.
    """
    if ranks > gpus:
        raise UsageError(
            f"train.ranks: got {ranks}, but {where} has {gpus} GPU{'s' * (gpus > 1)}, and each rank needs its own: "
            f"expected at most {gpus}"
        )
