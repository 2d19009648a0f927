"""Sample order: assigns examples to steps and ranks, as a function of (seed, epoch, position) alone.

It has no state between steps. So a run that resumes at any step, on any number of ranks, sees the same examples as
without the interruption: every example once an epoch, none twice.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from models.errors import TrainingError

ORDER_VERSION = 1
# BatchNorm cannot train on one example, so every rank gets at least two.
LEAST_A_RANK = 2


def seed_of(*parts: int | str) -> int:
    """Return a generator seed (63 bits) that depends on every part."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass(frozen=True)
class SampleOrder:
    """The steps of an epoch over `num_examples`: steps are split into micro-batches, and these into a slice per rank.

    A last batch of less than an eighth of a full one is joined to the batch before: so small a step is mostly noise.

    Attributes:
        pool: Number of all examples, if an epoch uses only a part of them. Each example comes once before any comes
            twice, except the few that do not fill an epoch and wait for the next shuffle. 0: `num_examples`.
    """

    num_examples: int
    batch: int
    world_size: int = 1
    accumulate: int = 1
    seed: int = 0
    pool: int = 0

    def __post_init__(self) -> None:
        min_examples = LEAST_A_RANK * self.world_size * self.accumulate
        if self.num_examples < min_examples or self.batch < min_examples:
            few, name = min((self.num_examples, "training examples"), (self.batch, "train.batch"))
            raise TrainingError(
                f"{name}: got {few}, expected at least {min_examples} ({LEAST_A_RANK} for each of {self.world_size} "
                "rank(s) "
                f"x {self.accumulate} accumulation(s)): take fewer ranks, or accumulate less"
            )

    @property
    def num_steps(self) -> int:
        """The number of optimiser steps in one epoch."""
        full, rest = divmod(self.num_examples, self.batch)
        min_examples = max(LEAST_A_RANK * self.world_size * self.accumulate, self.batch // 8)
        return full + (rest >= min_examples) if full else 1

    def epoch(self, epoch: int) -> torch.Tensor:
        """Return the positions of the examples in the order of this epoch, int64 (num_examples,)."""
        shuffle, start = self.part(epoch)
        generator = torch.Generator().manual_seed(seed_of("order", ORDER_VERSION, self.seed, shuffle))
        whole = torch.randperm(self.pool or self.num_examples, generator=generator)
        return whole[start : start + self.num_examples]

    def part(self, epoch: int) -> tuple[int, int]:
        """Return the number of the pool's shuffle that an epoch uses, and the start of its part in it."""
        shuffle, part = divmod(epoch, (self.pool or self.num_examples) // self.num_examples)
        return shuffle, part * self.num_examples

    def bounds(self, step: int) -> tuple[int, int]:
        """Return the start and the end of step `step` of an epoch, over all ranks."""
        start = step * self.batch
        return start, self.num_examples if step == self.num_steps - 1 else start + self.batch

    def slice(self, step: int, micro: int, rank: int) -> tuple[int, int]:
        """Return the start and the end of one rank's part of one micro-batch."""
        start, stop = share(*self.bounds(step), micro, self.accumulate)
        return share(start, stop, rank, self.world_size)


def share(start: int, stop: int, index: int, count: int) -> tuple[int, int]:
    """Return part `index` of `count` nearly equal parts of the range."""
    length = stop - start
    return start + length * index // count, start + length * (index + 1) // count
