"""The ranks of a training, as one rank sees them. With one rank every collective is a no-op."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from models.distributed.order import share
from models.distributed.watchdog import Watchdog
from models.project_spec.blocks import Train
from models.project_spec.parallel_dims import ParallelDims


@dataclass(frozen=True)
class World:
    """This rank's number, the number of ranks, the device, and the layout of the ranks; by default all are replicas."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    arranged: ParallelDims | None = None
    watchdog: Watchdog | None = None

    def under(self, train: Train) -> World:
        """Return the same ranks, arranged as the spec says.

        Raises:
            UsageError: This number of ranks does not fit the spec's arrangement.
        """
        return replace(self, arranged=train.parallel_dims(self.size))

    @property
    def layout(self) -> ParallelDims:
        """The arrangement of the ranks."""
        return self.arranged or ParallelDims(replicate=self.size)

    @property
    def data_rank(self) -> int:
        """The index of this rank's share of the examples; ranks of a tensor or pipeline group have the same share."""
        return self.layout.data_rank(self.rank)

    @property
    def data_size(self) -> int:
        """The number of shares of the examples."""
        return self.layout.data_size

    @property
    def is_output_rank(self) -> bool:
        """Whether this rank's losses and outputs count, among the ranks with the same examples."""
        return self.layout.is_output_rank(self.rank)

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which decides, reports and writes."""
        return self.rank == 0

    def excused(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the watchdog excuses this rank, which works alone or waits for another process."""
        return contextlib.nullcontext() if self.watchdog is None else self.watchdog.excused()

    def beat(self, step: int | None = None) -> None:
        """Record progress for the watchdog; `step` is the number of optimiser steps done, if it changed."""
        if self.watchdog is not None:
            self.watchdog.beat(step)

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum the tensor over all ranks, in place, and return it on every rank."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def from_first(self, values: list[float]) -> list[float]:
        """Return the values of rank 0 on every rank."""
        if self.size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.broadcast(tensor, src=0)
        return [float(value) for value in tensor.tolist()]

    def join_shares(self, rows: torch.Tensor, count: int) -> torch.Tensor:
        """Return all `count` rows in order, on every rank, joined from the shares of the output ranks."""
        if self.size == 1:
            return rows
        widest = -(-count // self.data_size)
        padded = rows.new_zeros((widest, *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        torch.distributed.all_gather(parts, padded)
        shares = [share(0, count, index, self.data_size) for index in range(self.data_size)]
        output_parts = [parts[rank] for rank in self.layout.output_ranks()]
        return torch.cat([part[: stop - start] for part, (start, stop) in zip(output_parts, shares, strict=True)])

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in rank order, on every rank."""
        if self.size == 1:
            return [value]
        objects: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(objects, value)
        return objects
