"""Asynchronous checkpoints: the state is copied, then a thread writes it while the next steps run."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any, Self

import torch

from models.distributed.world import World
from models.nets.deferred import is_spread
from models.training.checkpoints.checkpoint import CheckpointDraft, Tensors, write_alone
from models.training.checkpoints.state import stage

# The assumed cost of a checkpoint before the first one.
_FIRST_COST_S = 0.05


class CheckpointSaver:
    """Writes the checkpoints of one job, one at a time. Every rank has one, and all call it at the same steps.

    Args:
        folder: The folder of the job's checkpoints.
        world: The ranks; several ranks get a separate process group, because two threads may not share one.
        in_background: False to write before training continues.
        keep: How many checkpoints stay.

    Attributes:
        cost_s: Seconds of training that the last checkpoint cost: the wait of the steps plus the CPU time of the write.
        last: The newest whole checkpoint, if this saver knows it.
    """

    def __init__(self, folder: Path, world: World, in_background: bool, keep: int) -> None:
        self._folder, self._world, self._in_background, self._keep = folder, world, in_background, keep
        self._group = torch.distributed.new_group(backend="gloo") if world.size > 1 else None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._blocked_s = 0.0
        self.cost_s = _FIRST_COST_S
        self.last: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Finish the write in progress if the training fails; not with peers, since one that died would block it."""
        if error is not None and self._thread is not None and self._group is None:
            self._thread.join()

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._thread is not None and self._thread.is_alive()

    def save(self, step: int, meta: dict[str, Any], tensors: Tensors, best: Tensors | None) -> None:
        """Copy the state and begin to write it, after the previous checkpoint is written. Every rank must call it.

        Args:
            step: The optimiser steps done.
            meta: The state besides tensors; rank 0's is written.
            tensors: The live state of this rank.
            best: The best weights of this rank, which must not change; None if the previous checkpoint has the same.

        Raises:
            StoreError: This checkpoint or the previous one could not be written.
        """
        start = time.perf_counter()
        self.settle()
        draft = CheckpointDraft(self._folder, step, meta, self._keep, self.last if best is None else None)
        mine = stage(own_part(tensors, self._world)) | {f"best/{name}": value for name, value in (best or {}).items()}
        if self._in_background:
            self._thread = threading.Thread(target=self._write, args=(draft, mine), daemon=True)
            self._blocked_s = time.perf_counter() - start
            self._thread.start()
        else:
            self._write(draft, mine)
            self.cost_s = time.perf_counter() - start
            self.settle()

    def settle(self) -> None:
        """Wait for the write in progress.

        Raises:
            StoreError: It failed; earlier checkpoints stay.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def join_best(self, best: Tensors) -> Tensors:
        """Return all best weights, whole, on rank 0, from the parts of all ranks. Every rank must call it.

        The parts go through files, so that only rank 0 ever holds more than its part.

        Raises:
            StoreError: The disk is full or cannot be written.
        """
        self.settle()
        is_apart = bool(best) and (not self._world.is_first or any(map(is_spread, best.values())))
        if self._group is None or not any(self._world.gather(is_apart)):
            return best
        from models.training.checkpoints.shards import StoredCheckpoint, write_together

        draft = CheckpointDraft(self._folder.with_name(".best"), 0, {}, keep=1)
        write_together(draft, best, self._group)
        if not self._world.is_first:
            return {}
        whole = StoredCheckpoint(draft.final).read()
        shutil.rmtree(draft.folder)
        return whole

    def _write(self, draft: CheckpointDraft, tensors: Tensors) -> None:
        start = time.thread_time()
        try:
            if self._group is None:
                write_alone(draft, tensors)
            else:
                from models.training.checkpoints.shards import write_together

                write_together(draft, tensors, self._group)
            self.last = draft.final
        except BaseException as error:  # noqa: BLE001  settle() raises it
            self._error = error
        self.cost_s = self._blocked_s + time.thread_time() - start


def own_part(tensors: Tensors, world: World) -> Tensors:
    """Return the part of `tensors` that this rank must write: its shards, and whole tensors that no lower rank holds.

    Every rank must call it.
    """
    if world.size == 1:
        return tensors
    names_of_ranks = world.gather([name for name, value in tensors.items() if not is_spread(value)])
    before = {name for names in names_of_ranks[: world.rank] for name in names}
    return {name: value for name, value in tensors.items() if name not in before}
