"""Sample order: which example is seen when, by which rank; a function of (seed, epoch, position) alone.

There is no state between steps, so a run that is resumed at any step, on any number of ranks, sees the same order:
every example once an epoch, none twice.
seen: every example once an epoch, none twice.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from models.errors import TrainingError

ORDER_VERSION = 1
# BatchNorm cannot train on one example, so no rank is ever given fewer than two.
LEAST_A_RANK = 2


def seed_of(*parts: int | str) -> int:
    """A generator's seed (63 bits) that depends on every part."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass(frozen=True)
class SampleOrder:
    """The steps of an epoch over `num_examples`, each cut into micro-batches and those into a slice for each rank.

    A last batch of less than an eighth is joined to the one before: so small a step is mostly noise.

    Attributes:
        pool: All examples, where an epoch takes but a part of them: each comes once before any comes twice, but for
            the few that do not fill an epoch and wait for the next shuffle. 0: as many as an epoch has.
    """

    num_examples: int
    batch: int
    world_size: int = 1
    accumulate: int = 1
    seed: int = 0
    pool: int = 0

    def __post_init__(self) -> None:
        least = LEAST_A_RANK * self.world_size * self.accumulate
        if self.num_examples < least or self.batch < least:
            few, name = min((self.num_examples, "training examples"), (self.batch, "train.batch"))
            raise TrainingError(
                f"{name}: got {few}, expected at least {least} ({LEAST_A_RANK} for each of {self.world_size} rank(s) "
                f"x {self.accumulate} accumulation(s)): take fewer ranks, or accumulate less"
            )

    @property
    def num_steps(self) -> int:
        """Optimiser steps in one epoch."""
        full, rest = divmod(self.num_examples, self.batch)
        least = max(LEAST_A_RANK * self.world_size * self.accumulate, self.batch // 8)
        return full + (rest >= least) if full else 1

    def epoch(self, epoch: int) -> torch.Tensor:
        """Positions of the examples in the order of this epoch, int64 (num_examples,)."""
        shuffle, start = self.part(epoch)
        generator = torch.Generator().manual_seed(seed_of("order", ORDER_VERSION, self.seed, shuffle))
        whole = torch.randperm(self.pool or self.num_examples, generator=generator)
        return whole[start : start + self.num_examples]

    def part(self, epoch: int) -> tuple[int, int]:
        """Which shuffle of the pool an epoch takes a part of, and where the part starts."""
        shuffle, part = divmod(epoch, (self.pool or self.num_examples) // self.num_examples)
        return shuffle, part * self.num_examples

    def bounds(self, step: int) -> tuple[int, int]:
        """First and last example of step `step` of an epoch, over all ranks."""
        start = step * self.batch
        return start, self.num_examples if step == self.num_steps - 1 else start + self.batch

    def slice(self, step: int, micro: int, rank: int) -> tuple[int, int]:
        """First and last example of one rank in one micro-batch."""
        start, stop = share(*self.bounds(step), micro, self.accumulate)
        return share(start, stop, rank, self.world_size)


def share(start: int, stop: int, index: int, count: int) -> tuple[int, int]:
    """Part `index` of `count` nearly equal parts of the range."""
    length = stop - start
    return start + length * index // count, start + length * (index + 1) // count
