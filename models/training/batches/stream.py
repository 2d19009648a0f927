"""Examples too many to hold: read from disk in shards, shuffled without ever knowing the whole order.

An epoch takes the shards (runs of consecutive rows of the file) in a shuffled order, a group at a time, and shuffles
the rows within the group. The position of a row is a function of (seed, epoch, position) alone, so a job that resumes
within an epoch sees the same order. Two groups are in memory, the one in use and the one that a thread reads ahead:
memory is set by `train.memory_mb` and does not grow with the table.
thread: memory is set by `train.memory_mb` and does not grow with the table.

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

# Shards of a group: enough that a batch mixes far-off rows, few enough that each is read in one long stretch.
_SHARDS_A_GROUP = 16
_HALVES = 2

Group = tuple[int, int]  # (epoch, number of the group in it); epoch -1: in the order of the file


@dataclass(frozen=True)
class Shards:
    """The partition of rows into shards and of shards into groups.

    Attributes:
        num_rows: Rows over all shards.
        shard_rows: Rows of a shard; the last may hold fewer.
        group_shards: Shards of a group.
        seed: Seed of the shuffle.
    """

    num_rows: int
    shard_rows: int
    group_shards: int
    seed: int

    @classmethod
    def fitting(cls, num_rows: int, row_bytes: int, memory_bytes: int, least_group: int, seed: int) -> Shards:
        """Two groups in `memory_bytes`, unless a batch of `least_group` rows needs more."""
        shard_rows = memory_bytes // (_HALVES * _SHARDS_A_GROUP * row_bytes)
        # One of a group's shards may be the short one at the end of the file.
        return cls(num_rows, max(1, shard_rows, -(-least_group // (_SHARDS_A_GROUP - 1))), _SHARDS_A_GROUP, seed)

    @property
    def num_shards(self) -> int:
        """Shards in all."""
        return -(-self.num_rows // self.shard_rows)

    @property
    def num_groups(self) -> int:
        """Groups in an epoch."""
        return -(-self.num_shards // self.group_shards)

    def members(self, group: Group) -> list[int]:
        """The shards of a group, in the order in which they are held."""
        epoch, number = group
        start = number * self.group_shards
        return _shard_order(self, epoch)[start : start + self.group_shards]

    def starts(self, epoch: int) -> list[int]:
        """Position at which each group of an epoch begins, and where the last ends."""
        return _group_starts(self, epoch)

    def rows(self, group: Group) -> torch.Tensor:
        """The rows of a group in the order in which the epoch takes them, int64."""
        return _group_rows(self, group)

    def extent(self, shard: int) -> tuple[int, int]:
        """First row of a shard and the row after its last."""
        start = shard * self.shard_rows
        return start, min(start + self.shard_rows, self.num_rows)


class Stream:
    """The rows of one tensor file, read as a sliding pair of groups into `buffers`; `at` gives positions.

    Args:
        path: The file.
        shards: How it is cut.
        pinned: Keep the buffers where a GPU can copy from.

    Raises:
        DataError: The file cannot be read.
    """

    def __init__(self, path: Path, shards: Shards, pinned: bool = False) -> None:
        self.shards = shards
        self._path = path
        self._places = places(path)
        self._file = os.open(path, os.O_RDONLY)
        self._half_rows = shards.group_shards * shards.shard_rows
        self.buffers = {
            name: torch.from_numpy(np.empty((_HALVES * self._half_rows, *place.shape[1:]), dtype=place.dtype))
            for name, place in self._places.items()
        }
        if pinned:
            self.buffers = {name: buffer.pin_memory() for name, buffer in self.buffers.items()}
        self._slots = torch.full((shards.num_shards,), -1, dtype=torch.int64)
        self._held: list[Group | None] = [None] * _HALVES
        self._ahead: tuple[Group, int, Future[None]] | None = None
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="examples")
        weakref.finalize(self, _close, self._reader, self._file)

    def __len__(self) -> int:
        return self.shards.num_rows

    def order(self, epoch: int, start: int = 0) -> StreamOrder:
        """The order of an epoch, from `start` on; looking at a stretch of it brings the rows into the buffers."""
        return StreamOrder(self, epoch, start)

    def at(self, rows: torch.Tensor) -> torch.Tensor:
        """Positions of `rows` in the buffers, int64; rows of a known order, or near each other in the file.

        Raises:
            DataError: The disk failed.
        """
        if not len(rows):
            return rows
        shard = rows // self.shards.shard_rows
        slot = self._slots.index_select(0, shard)
        if int(slot.min()) < 0:
            first, last = (int(one) // self.shards.group_shards for one in (shard.min(), shard.max()))
            self.bring([(-1, number) for number in range(first, last + 1)])
            slot = self._slots.index_select(0, shard)
        return slot * self.shards.shard_rows + rows % self.shards.shard_rows

    def bring(self, groups: list[Group]) -> None:
        """Load one group, or two consecutive ones, into the buffers; the next group is read ahead.

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
        """All rows of one tensor, a shard at a time, past the buffers.

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
        """Begin to read a group into the half of the buffers that `in_use` does not occupy."""
        half = self._oldest() if in_use not in self._held or in_use is None else 1 - self._held.index(in_use)
        self._forget(half)
        self._ahead = (group, half, self._reader.submit(self._fill, group, half))

    def _oldest(self) -> int:
        ranked = [(-2, -1) if group is None else group for group in self._held]
        return ranked.index(min(ranked))

    def _settle(self) -> None:
        """Wait for the read in progress and note where its group is."""
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
    """The rows of an epoch in their order, like a tensor of them; a slice comes with its rows in the buffers."""

    def __init__(self, stream: Stream, epoch: int, start: int = 0) -> None:
        self._stream = stream
        self._epoch = epoch
        self._start = start

    def __getitem__(self, span: slice) -> torch.Tensor:
        """Rows `stretch.start` to `stretch.stop` of the epoch, int64; they may lie in two groups at most."""
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
        """Itself: rows are looked up where the buffers are, on the CPU."""
        del device
        return self


def _close(reader: ThreadPoolExecutor, file: int) -> None:
    # Without waiting: the last reference may be let go of in the reader's own thread.
    reader.shutdown(wait=False, cancel_futures=True)
    os.close(file)


@lru_cache(maxsize=4)
def _shard_order(shards: Shards, epoch: int) -> list[int]:
    if epoch < 0:
        return list(range(shards.num_shards))
    generator = torch.Generator().manual_seed(seed_of("shards", ORDER_VERSION, shards.seed, epoch))
    order: list[int] = torch.randperm(shards.num_shards, generator=generator).tolist()
    return order


@lru_cache(maxsize=4)
def _group_starts(shards: Shards, epoch: int) -> list[int]:
    starts = [0]
    for number in range(shards.num_groups):
        sizes = [stop - start for start, stop in map(shards.extent, shards.members((epoch, number)))]
        starts.append(starts[-1] + sum(sizes))
    return starts


@lru_cache(maxsize=3)
def _group_rows(shards: Shards, group: Group) -> torch.Tensor:
    rows = torch.cat([torch.arange(*shards.extent(shard)) for shard in shards.members(group)])
    generator = torch.Generator().manual_seed(seed_of("rows", ORDER_VERSION, shards.seed, *group))
    return rows[torch.randperm(len(rows), generator=generator)]
