"""Checkpoints: one folder per step, written atomically and loaded only if every byte is as it was written.

`step-N` is written under a temporary name, flushed and renamed. It holds the part that each rank wrote in
`state-RANK.safetensors`, and the best weights in `best-RANK.safetensors`; `state.json`; and `manifest.json` with the
SHA-256 of all files, written last. If a folder is incomplete or changed, the one before is loaded, so keep at least
two. No file in it can run code. `shards.py` writes a checkpoint from several ranks and reads it on other ranks.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from models.distributed.world import World
from models.errors import StoreError
from models.files import sha256, storing, sync, write_json
from models.training.checkpoints.weights import write_tensors
from models.training.job import CHECKPOINT_MANIFEST

# Number of checkpoints for trees, which have no setting for it: if one is incomplete, the one before is loaded.
KEEP = 2
BEST = "best/"
_META = "state.json"

Tensors = dict[str, torch.Tensor]
Digests = dict[str, str]


@dataclass(frozen=True)
class CheckpointDraft:
    """A checkpoint in progress.

    Attributes:
        folder: The folder of the checkpoints of one job; one rank pool writes it at a time.
        step: The optimiser steps done.
        meta: The state besides tensors, as plain data.
        keep: How many checkpoints stay, including this one.
        before: A checkpoint with the same best weights: its files are hard-linked, not written again.
    """

    folder: Path
    step: int
    meta: dict[str, Any]
    keep: int = KEEP
    before: Path | None = None

    @property
    def final(self) -> Path:
        """The folder of the finished checkpoint."""
        return self.folder / f"step-{self.step:012d}"

    @property
    def temporary(self) -> Path:
        """The folder in which it is written."""
        return self.folder / f".{self.final.name}.tmp"

    def write_part(
        self, tensors: Mapping[str, torch.Tensor], rank: int, offsets: dict[str, list[int]] | None = None
    ) -> Digests:
        """Write the part of one rank; return the digests of its files.

        Args:
            tensors: By name; those under `best/` go to a separate file.
            rank: The rank that writes the part.
            offsets: Where in the whole tensor each part begins; default: each tensor is whole.

        Raises:
            StoreError: The disk is full or cannot be written.
        """
        digests = {}
        for kind in ("state", "best"):
            mine = {name: value for name, value in tensors.items() if name.startswith(BEST) == (kind == "best")}
            if not mine:
                continue
            path = self.temporary / f"{kind}-{rank:05d}.safetensors"
            with storing(path):
                write_tensors(path, mine, _sharding(mine, offsets) if offsets else None)
                digests[path.name] = sha256(path)
        return digests

    def close(self, digests: Digests) -> Path:
        """Finish the checkpoint after every rank has written its part, and remove the oldest checkpoints.

        Raises:
            StoreError: The disk is full or cannot be written; earlier checkpoints stay.
        """
        temporary = self.temporary
        with storing(self.folder):
            digests = digests | self._link_best()
            write_json(temporary / _META, self.meta)
            digests[_META] = sha256(temporary / _META)
            for leftover in {path.name for path in temporary.iterdir()} - digests.keys():
                (temporary / leftover).unlink()  # left by a writer that was killed
            write_json(temporary / CHECKPOINT_MANIFEST, digests)
            sync(temporary)
            shutil.rmtree(self.final, ignore_errors=True)
            temporary.rename(self.final)
            sync(self.folder)
        for old in _folders(self.folder)[self.keep :]:
            shutil.rmtree(old, ignore_errors=True)
        return self.final

    def drop(self) -> None:
        """Remove the files of an unfinished checkpoint."""
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _link_best(self) -> Digests:
        if self.before is None:
            return {}
        # Uses the hash from the time of writing: a new hash would accept bytes that have changed since.
        digests = {name: digest for name, digest in _manifest(self.before).items() if name.startswith("best-")}
        for name in digests:
            (self.temporary / name).unlink(missing_ok=True)
            os.link(self.before / name, self.temporary / name)
        return digests


def write_alone(draft: CheckpointDraft, tensors: Tensors) -> Path:
    """Write the checkpoint of a job with one rank.

    Raises:
        StoreError: The disk is full or cannot be written; earlier checkpoints stay.
    """
    with storing(draft.folder):
        draft.drop()
        draft.temporary.mkdir(parents=True)
        try:
            return draft.close(draft.write_part(tensors, 0))
        except BaseException:
            draft.drop()
            raise


def newest(folder: Path, world: World) -> Path | None:
    """Return the newest checkpoint whose files are all as they were written; None if there is none.

    Each rank reads a share of the files. Every rank must call it; all get the same result.
    """
    names: list[str] = world.gather([path.name for path in _folders(folder)] if world.is_first else [])[0]
    for name in names:
        if all(world.gather(_is_whole(folder / name, world.rank, world.size))):
            return folder / name
    return None


def read_meta(path: Path) -> dict[str, Any]:
    """Return the state of a checkpoint besides its tensors."""
    meta: dict[str, Any] = json.loads((path / _META).read_text())
    return meta


def _folders(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True)


def _manifest(path: Path) -> Digests:
    try:
        manifest = json.loads((path / CHECKPOINT_MANIFEST).read_text())
        return {str(name): str(digest) for name, digest in manifest.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise StoreError(f"{path}: no whole checkpoint ({error}): run again to continue from another") from error


def _is_whole(path: Path, rank: int, size: int) -> bool:
    try:
        manifest = _manifest(path)
        mine = sorted(manifest)[rank::size]
        return _META in manifest and all(sha256(path / name) == manifest[name] for name in mine)
    except (OSError, StoreError):
        return False


def _sharding(tensors: Mapping[str, torch.Tensor], offsets: dict[str, list[int]]) -> dict[str, str]:
    """Return the metadata with which torch's reader of sharded safetensors locates the parts of tensors in a file."""
    places = {name: {"saved_offsets": offsets[name]} for name in tensors}
    return {"DCP_SHARDING_INFO": json.dumps(places), "DCP_VERSION": "1.0", "format": "pt"}
