"""Streams examples that are too many for memory: reads shards from disk and shuffles without a list of all rows.

An epoch reads the shards (ranges of consecutive rows in the file) in a shuffled order, one group of shards at a time,
and shuffles the rows within each group. The order is a function of (seed, epoch, position) alone, so a job that resumes
within an epoch sees the same rows as without the interruption. Two groups are in memory: the one in use and the one
that a thread reads ahead. `train.memory_mb` limits the memory, which does not grow with the table.

Source: block shuffling as in Corgi (Livne et al. 2023) and tf.data's interleave with a shuffle buffer.
"""

from __future__ import annotations

import os
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from models.data.tensor_file import TensorLocation, places, read_rows
from models.distributed.order import ORDER_VERSION, seed_of
from models.errors import DataError

# Shards in a group: enough that a batch mixes distant rows, few enough that each is read in one long range.
_SHARDS_A_GROUP = 16
_HALVES = 2

Group = tuple[int, int]  # (epoch, number of the group in it); epoch -1: in the order of the file


@dataclass(frozen=True)
class Shards:
    """The division of rows into shards and of shards into groups.

    Attributes:
        num_rows: Rows over all shards.
        shard_rows: Rows in a shard; the last may have fewer.
        group_shards: Shards in a group.
        seed: Seed of the shuffle.
    """

    num_rows: int
    shard_rows: int
    group_shards: int
    seed: int

    @classmethod
    def fitting(cls, num_rows: int, row_bytes: int, memory_bytes: int, least_group: int, seed: int) -> Shards:
        """Return shards so that two groups fit into `memory_bytes`, unless a group of `least_group` rows needs more."""
        shard_rows = memory_bytes // (_HALVES * _SHARDS_A_GROUP * row_bytes)
        # One shard of a group may be the short last shard of the file.
        return cls(num_rows, max(1, shard_rows, -(-least_group // (_SHARDS_A_GROUP - 1))), _SHARDS_A_GROUP, seed)

    @property
    def num_shards(self) -> int:
        """The number of shards."""
        return -(-self.num_rows // self.shard_rows)

    @property
    def num_groups(self) -> int:
        """The number of groups in an epoch."""
        return -(-self.num_shards // self.group_shards)

    def members(self, group: Group) -> list[int]:
        """Return the shards of a group, in the order of the buffers."""
        epoch, number = group
        start = number * self.group_shards
        return self._order(epoch)[start : start + self.group_shards]

    @lru_cache(maxsize=4)  # noqa: B019  a few numbers are held, no file
    def starts(self, epoch: int) -> list[int]:
        """Return the position at which each group of an epoch begins, and the end of the last."""
        starts = [0]
        for number in range(self.num_groups):
            sizes = [stop - start for start, stop in map(self.extent, self.members((epoch, number)))]
            starts.append(starts[-1] + sum(sizes))
        return starts

    @lru_cache(maxsize=3)  # noqa: B019  the rows of three groups at most
    def rows(self, group: Group) -> torch.Tensor:
        """Return the rows of a group in the order of the epoch, int64."""
        rows = torch.cat([torch.arange(*self.extent(shard)) for shard in self.members(group)])
        generator = torch.Generator().manual_seed(seed_of("rows", ORDER_VERSION, self.seed, *group))
        return rows[torch.randperm(len(rows), generator=generator)]

    def extent(self, shard: int) -> tuple[int, int]:
        """Return the first row of a shard and the row after its last."""
        start = shard * self.shard_rows
        return start, min(start + self.shard_rows, self.num_rows)

    @lru_cache(maxsize=4)  # noqa: B019  the numbers of the shards, four times at most
    def _order(self, epoch: int) -> list[int]:
        if epoch < 0:
            return list(range(self.num_shards))
        generator = torch.Generator().manual_seed(seed_of("shards", ORDER_VERSION, self.seed, epoch))
        order: list[int] = torch.randperm(self.num_shards, generator=generator).tolist()
        return order


class Stream:
    """The rows of one tensor file; `buffers` hold two groups at a time, and `at` returns the places of rows in them.

    Args:
        path: The file.
        shards: The division of the file into shards and groups.

    Raises:
        DataError: The file cannot be read.
    """

    def __init__(self, path: Path, shards: Shards) -> None:
        self.shards = shards
        self._path = path
        self._places = places(path)
        self._file = os.open(path, os.O_RDONLY)
        self._half_rows = shards.group_shards * shards.shard_rows
        self.buffers = {
            name: torch.from_numpy(np.empty((_HALVES * self._half_rows, *place.shape[1:]), dtype=place.dtype))
            for name, place in self._places.items()
        }
        self._slots = torch.full((shards.num_shards,), -1, dtype=torch.int64)
        self._held: list[Group | None] = [None] * _HALVES
        self._ahead: tuple[Group, int, Future[None]] | None = None
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="examples")
        weakref.finalize(self, _close, self._reader, self._file)

    def __len__(self) -> int:
        return self.shards.num_rows

    def order(self, epoch: int, start: int = 0) -> StreamOrder:
        """Return the order of an epoch from `start` on; a slice of it loads its rows into the buffers."""
        return StreamOrder(self, epoch, start)

    def at(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the places of `rows` in the buffers, int64; `rows` are from a slice of an order, or close in the file.

        Raises:
            DataError: The disk failed.
        """
        if not len(rows):
            return rows
        shard = rows // self.shards.shard_rows
        slot = self._slots.index_select(0, shard)
        if int(slot.min()) < 0:
            first, last = (int(bound) // self.shards.group_shards for bound in (shard.min(), shard.max()))
            self.bring([(-1, number) for number in range(first, last + 1)])
            slot = self._slots.index_select(0, shard)
        return slot * self.shards.shard_rows + rows % self.shards.shard_rows

    def bring(self, groups: list[Group]) -> None:
        """Load one group, or two consecutive groups, into the buffers; after one group, begin to read the next ahead.

        Raises:
            DataError: The disk failed.
        """
        if len(groups) > _HALVES:
            raise ValueError(f"{len(groups)} groups at once: a batch is larger than a group of shards")
        for before, group in zip([None, *groups], groups, strict=False):
            if group not in self._held:
                if self._ahead is None or self._ahead[0] != group:
                    self._settle()
                    self._begin(group, before)
                self._settle()
        if len(groups) == 1 and self._ahead is None:
            following = self._after(groups[0])
            if following is not None and following not in self._held:
                self._begin(following, groups[0])

    def read(self, name: str) -> Iterator[torch.Tensor]:
        """Yield all rows of one tensor, a shard at a time, without the buffers.

        Raises:
            DataError: The disk failed.
        """
        for shard in range(self.shards.num_shards):
            yield torch.from_numpy(self._rows(self._places[name], shard))

    def _after(self, group: Group) -> Group | None:
        epoch, number = group
        if number + 1 < self.shards.num_groups:
            return epoch, number + 1
        return (epoch + 1, 0) if epoch >= 0 else None

    def _begin(self, group: Group, in_use: Group | None) -> None:
        """Begin to read a group into the half of the buffers that does not hold `in_use`."""
        half = self._oldest() if in_use not in self._held or in_use is None else 1 - self._held.index(in_use)
        self._forget(half)
        self._ahead = (group, half, self._reader.submit(self._fill, group, half))

    def _oldest(self) -> int:
        ranked = [(-2, -1) if group is None else group for group in self._held]
        return ranked.index(min(ranked))

    def _settle(self) -> None:
        """Wait for the read in progress and record the places of its shards."""
        if self._ahead is None:
            return
        (group, half, reading), self._ahead = self._ahead, None
        reading.result()
        self._held[half] = group
        for position, shard in enumerate(self.shards.members(group)):
            self._slots[shard] = half * self.shards.group_shards + position

    def _forget(self, half: int) -> None:
        low, high = half * self.shards.group_shards, (half + 1) * self.shards.group_shards
        self._slots[(self._slots >= low) & (self._slots < high)] = -1
        self._held[half] = None

    def _fill(self, group: Group, half: int) -> None:
        for position, shard in enumerate(self.shards.members(group)):
            start = half * self._half_rows + position * self.shards.shard_rows
            for name, place in self._places.items():
                rows = torch.from_numpy(self._rows(place, shard))
                self.buffers[name][start : start + len(rows)] = rows

    def _rows(self, place: TensorLocation, shard: int) -> np.ndarray:
        try:
            return read_rows(self._file, place, *self.shards.extent(shard))
        except OSError as error:
            raise DataError(f"{self._path}: cannot be read ({error}): remove it and run again") from error


class StreamOrder:
    """The row numbers of an epoch in order, like a tensor; a slice also loads its rows into the buffers."""

    def __init__(self, stream: Stream, epoch: int, start: int = 0) -> None:
        self._stream = stream
        self._epoch = epoch
        self._start = start

    def __getitem__(self, span: slice) -> torch.Tensor:
        """Return rows `span.start` to `span.stop` of the epoch, int64, from at most two groups."""
        span = slice(self._start + span.start, self._start + span.stop)
        shards = self._stream.shards
        starts = shards.starts(self._epoch)
        first = bisect_right(starts, span.start) - 1
        last = max(first, bisect_left(starts, span.stop) - 1)
        groups = [(self._epoch, number) for number in range(first, last + 1)]
        self._stream.bring(groups)
        parts = [
            shards.rows(group)[max(0, span.start - starts[group[1]]) : span.stop - starts[group[1]]] for group in groups
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def to(self, device: torch.device) -> StreamOrder:
        """Return itself: the buffers, and so the row lookups, are on the CPU."""
        del device
        return self


def _close(reader: ThreadPoolExecutor, file: int) -> None:
    # Does not wait: the reader's own thread may release the last reference.
    reader.shutdown(wait=False, cancel_futures=True)
    os.close(file)
