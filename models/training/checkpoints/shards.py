"""A checkpoint that several ranks write together, and one that is read by other ranks than those that wrote it.

`torch.distributed.checkpoint` plans who writes and who reads which part of what tensor; here is where the bytes go. In
place of its own storage, whose index is a pickle, each rank's part is a safetensors file in the layout of torch's
`HuggingFaceStorageReader`, which reads it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from models.errors import StoreError
from models.files import storing
from models.training.checkpoints.checkpoint import CheckpointDraft, Digests, Tensors


def write_together(draft: CheckpointDraft, tensors: Tensors, group: torch.distributed.ProcessGroup) -> None:
    """Write a checkpoint of which this rank holds `tensors`: whole ones, or its shards. Every rank must call it.

    A tensor that several ranks hold is written by the lowest of them: of running statistics rank 0's count.

    Args:
        draft: The same on every rank.
        tensors: Tensors by name, on the CPU; they must not change meanwhile.
        group: The group of all ranks, used for nothing else at the time.

    Raises:
        StoreError: A rank's disk is full or cannot be written; the checkpoints before stay.
    """
    planner = DefaultSavePlanner(flatten_state_dict=False, dedup_save_to_lowest_rank=True)
    try:
        save(tensors, storage_writer=_Writer(draft), planner=planner, process_group=group)
    except CheckpointException as failed:
        if torch.distributed.get_rank(group) == 0:
            draft.drop()
        rank, (error, _) = next(iter(failed.failures.items()))
        if isinstance(error, StoreError):
            raise StoreError(f"rank {rank}: {error}") from error
        raise error from None


class StoredCheckpoint:
    """The tensors of a whole checkpoint, whatever ranks wrote it.

    Attributes:
        shapes: The whole shape of each tensor, by name.
        types: The type of each tensor, by name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._metadata = HuggingFaceStorageReader(str(path)).read_metadata()
        known = {
            name: value
            for name, value in self._metadata.state_dict_metadata.items()
            if isinstance(value, TensorStorageMetadata)
        }
        self.shapes = {name: tuple(value.size) for name, value in known.items()}
        self.types = {name: value.properties.dtype for name, value in known.items()}

    def load(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Fill tensors in place; of a sharded one the part that this rank holds. Ranks need not call it together.

        Raises:
            StoreError: A name is not in the checkpoint, or its shape differs.
        """
        planner, reader = DefaultLoadPlanner(flatten_state_dict=False), HuggingFaceStorageReader(str(self._path))
        try:
            planner.set_up_planner(dict(targets), self._metadata, is_coordinator=True)
            reader.set_up_storage_reader(self._metadata, is_coordinator=True)
            plan = planner.create_global_plan([planner.create_local_plan()])[0]
            with torch.no_grad():
                reader.read_data(planner.finish_plan(plan), planner).wait()
        except (OSError, RuntimeError, ValueError) as error:
            raise StoreError(f"{self._path}: cannot be read as asked: {error}") from error


class _Writer(StorageWriter):
    """Writes each rank's part as safetensors; the coordinator closes the folder."""

    def __init__(self, draft: CheckpointDraft) -> None:
        self._draft = draft

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Does nothing: each writer writes one checkpoint."""
        del checkpoint_id

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Does nothing."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On the coordinator, after all ranks have planned and before any writes: make an empty folder."""
        with storing(self._draft.folder):
            self._draft.drop()
            self._draft.temporary.mkdir(parents=True)
        return [SavePlan(plan.items, rank, plan.planner_data) for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's part and hash it."""
        tensors: Tensors = {}
        offsets: dict[str, list[int]] = {}
        for item in plan.items:
            value = planner.resolve_data(item)
            assert isinstance(value, torch.Tensor), item
            assert item.tensor_data is not None, item
            tensors[item.index.fqn] = value.detach()
            offsets[item.index.fqn] = list(item.tensor_data.chunk.offsets)
        digests = self._draft.write_part(tensors, plan.storage_data, offsets)
        future: Future[list[WriteResult]] = Future()
        future.set_result([WriteResult(plan.items[0].index, 0, digests)] if plan.items else [])
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the coordinator, after all parts are written: make the folder a checkpoint."""
        del metadata
        digests: Digests = {}
        for result in (one for part in results for one in part):
            digests |= result.storage_data
        self._draft.close(digests)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Never called: the folder is fixed."""
        return bool(checkpoint_id)
