"""The ranks that train together, as one rank sees them. With one rank every collective is a no-op."""

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
    """Which rank this is, of how many, on which device, and how they are arranged; by default as replicas in a row."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    arranged: ParallelDims | None = None
    watchdog: Watchdog | None = None

    def under(self, train: Train) -> World:
        """The same ranks, arranged by the spec.

        Raises:
            UsageError: This number of ranks cannot be arranged so.
        """
        return replace(self, arranged=ParallelDims.of(train, self.size))

    @property
    def layout(self) -> ParallelDims:
        """The arrangement of the ranks."""
        return self.arranged or ParallelDims(replicate=self.size)

    @property
    def data_rank(self) -> int:
        """Which share of the examples this rank sees; ranks that share layers or follow each other see the same."""
        return self.layout.data_rank(self.rank)

    @property
    def data_size(self) -> int:
        """Number of such shares."""
        return self.layout.data_size

    @property
    def is_output_rank(self) -> bool:
        """True when this rank's losses and outputs count among those that see the same examples."""
        return self.layout.is_output_rank(self.rank)

    @property
    def is_first(self) -> bool:
        """True for the rank that decides, reports and writes."""
        return self.rank == 0

    def excused(self) -> contextlib.AbstractContextManager[None]:
        """Within the block peers take this rank for alive: it works alone, or waits for somebody who is no rank."""
        return contextlib.nullcontext() if self.watchdog is None else self.watchdog.excused()

    def beat(self, step: int | None = None) -> None:
        """Send a heartbeat; with `step` if an optimiser step was done."""
        if self.watchdog is not None:
            self.watchdog.beat(step)

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, in place, on every rank."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def from_first(self, values: list[float]) -> list[float]:
        """Broadcast the values of rank 0."""
        if self.size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.broadcast(tensor, src=0)
        return [float(value) for value in tensor.tolist()]

    def join_shares(self, rows: torch.Tensor, count: int) -> torch.Tensor:
        """All `count` rows in order, on every rank, from each speaking rank's `share` of them by its data rank."""
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
        """Gather one object of each rank on every rank, in the order of the ranks."""
        if self.size == 1:
            return [value]
        objects: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(objects, value)
        return objects
