"""Sharded checkpoints: several ranks write one together, and another set of ranks can read it.

`torch.distributed.checkpoint` plans which rank writes and reads which part of each tensor; this module stores the
bytes. Torch's own storage has a pickle as its index. Here, each rank's part is a safetensors file in the layout of
torch's `HuggingFaceStorageReader`, which reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from models.errors import StoreError
from models.files import storing
from models.training.checkpoints.checkpoint import CheckpointDraft, Digests, Tensors


def write_together(draft: CheckpointDraft, tensors: Tensors, group: torch.distributed.ProcessGroup) -> None:
    """Write this rank's `tensors`, whole ones or its shards, into a common checkpoint. Every rank must call it.

    If several ranks hold a tensor, the lowest rank writes it: so rank 0's running statistics are stored.

    Args:
        draft: The same on every rank.
        tensors: By name, on the CPU; they must not change during the write.
        group: The process group of all ranks, without other use during the write.

    Raises:
        StoreError: A rank's disk is full or cannot be written; earlier checkpoints stay.
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
        with storing(draft.folder):
            raise error from None


class StoredCheckpoint:
    """The tensors of a whole checkpoint, written by any set of ranks.

    Attributes:
        shapes: The whole shape of each tensor, by name.
        types: The type of each tensor, by name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._metadata = HuggingFaceStorageReader(str(path)).read_metadata()
        stored = {
            name: value
            for name, value in self._metadata.state_dict_metadata.items()
            if isinstance(value, TensorStorageMetadata)
        }
        self.shapes = {name: tuple(value.size) for name, value in stored.items()}
        self.types = {name: value.properties.dtype for name, value in stored.items()}

    def read(self, prefix: str = "") -> Tensors:
        """Return all tensors whose names begin with `prefix`, whole, on the CPU.

        Raises:
            StoreError: The checkpoint cannot be read.
        """
        names = [name for name in self.shapes if name.startswith(prefix)]
        whole = {name: torch.empty(self.shapes[name], dtype=self.types[name]) for name in names}
        self.load(whole)
        return whole

    def load(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Fill tensors in place; for a sharded tensor, this rank's part. Ranks need not call it together.

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
            raise StoreError(f"{self._path}: cannot be read as asked: {error}: remove it and run again") from error


class _Writer(FileSystemWriter):
    """Writes each rank's part as safetensors; the coordinator finishes the checkpoint.

    torch's `HuggingFaceStorageWriter` makes a second copy of a part in memory, and takes twice the CPU (decision 23).
    """

    def __init__(self, draft: CheckpointDraft) -> None:
        super().__init__(draft.temporary)
        self._draft = draft

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Make an empty folder, on the coordinator, after all ranks have planned and before any rank writes."""
        with storing(self._draft.folder):
            self._draft.drop()
            self._draft.temporary.mkdir(parents=True)
        return [replace(plan, storage_data=rank) for rank, plan in enumerate(plans)]

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
        """Finish the checkpoint, on the coordinator, after all parts are written."""
        del metadata
        digests: Digests = {}
        for result in (result_of_part for part in results for result_of_part in part):
            digests |= result.storage_data
        self._draft.close(digests)
