"""Checkpoints: one folder a step, whole or not there, never loaded unless every byte is as it was written.

`step-N` is written under another name, synced, then renamed. It holds `state-RANK.safetensors`, and
`best-RANK.safetensors` for the best weights, with the part that each rank wrote; `state.json`; and `manifest.json` with
the SHA-256 of all files, written last. An incomplete or changed folder is skipped for the one before, so keep at least
two. The files hold no code. `shards.py` describes how several ranks write one checkpoint, and how other ranks read it.
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
from models.files import sha256, storing, write_json
from models.training.checkpoints.weights import write_tensors

# Of trees, which say nothing else: a torn one is passed over for the one before.
KEEP = 2
BEST = "best/"
_META = "state.json"
_MANIFEST = "manifest.json"

Tensors = dict[str, torch.Tensor]
Digests = dict[str, str]


@dataclass(frozen=True)
class CheckpointDraft:
    """A checkpoint that is being made.

    Attributes:
        folder: Holds the checkpoints of one job; one gang writes it at a time.
        step: The optimiser steps done.
        meta: Everything except tensors; plain data.
        keep: How many checkpoints stay, this one among them.
        before: The checkpoint whose best weights are those of this one too: they are linked, not written again.
    """

    folder: Path
    step: int
    meta: dict[str, Any]
    keep: int = KEEP
    before: Path | None = None

    @property
    def final(self) -> Path:
        """The final path."""
        return self.folder / f"step-{self.step:012d}"

    @property
    def temporary(self) -> Path:
        """The path while it is written."""
        return self.folder / f".{self.final.name}.tmp"

    def write_part(
        self, tensors: Mapping[str, torch.Tensor], rank: int, offsets: dict[str, list[int]] | None = None
    ) -> Digests:
        """Write what one rank has to add; gives the digests of its files.

        Args:
            tensors: By name; those under `best/` are written apart.
            rank: Whose part it is.
            offsets: Where in the whole tensor each part begins; default: each is whole.

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
        """Make a folder of which every rank has written its part a checkpoint, and drop the oldest.

        Raises:
            StoreError: The disk is full or cannot be written; the checkpoints before stay.
        """
        temporary = self.temporary
        with storing(self.folder):
            digests = digests | self._link_best()
            write_json(temporary / _META, self.meta)
            digests[_META] = sha256(temporary / _META)
            for leftover in {path.name for path in temporary.iterdir()} - digests.keys():
                (temporary / leftover).unlink()  # of a writer that was killed
            write_json(temporary / _MANIFEST, digests)
            _flush(temporary)
            shutil.rmtree(self.final, ignore_errors=True)
            temporary.rename(self.final)
            _flush(self.folder)
        for old in _folders(self.folder)[self.keep :]:
            shutil.rmtree(old, ignore_errors=True)
        return self.final

    def drop(self) -> None:
        """Remove what was written of a checkpoint that will not be."""
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _link_best(self) -> Digests:
        if self.before is None:
            return {}
        # The hash of when it was written: one taken now would call bytes good that have changed since.
        digests = {name: digest for name, digest in _manifest(self.before).items() if name.startswith("best-")}
        for name in digests:
            (self.temporary / name).unlink(missing_ok=True)
            os.link(self.before / name, self.temporary / name)
        return digests


def write_alone(draft: CheckpointDraft, tensors: Tensors) -> Path:
    """Write the checkpoint of a job with one rank.

    Raises:
        StoreError: The disk is full or cannot be written; the checkpoints before stay.
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
    """The newest checkpoint of which every file is as it was written; None when there is none.

    Each rank reads a share of the files. Every rank must call it, and gets the same answer.
    """
    names: list[str] = world.gather([path.name for path in _folders(folder)] if world.is_first else [])[0]
    for name in names:
        if all(world.gather(_is_whole(folder / name, world.rank, world.size))):
            return folder / name
    return None


def read_meta(path: Path) -> dict[str, Any]:
    """Read the part of a checkpoint that is no tensor."""
    meta: dict[str, Any] = json.loads((path / _META).read_text())
    return meta


def _folders(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True)


def _manifest(path: Path) -> Digests:
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        return {str(name): str(digest) for name, digest in manifest.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise StoreError(f"{path}: no whole checkpoint ({error}): run again to go on from another") from error


def _is_whole(path: Path, rank: int, size: int) -> bool:
    try:
        manifest = _manifest(path)
        mine = sorted(manifest)[rank::size]
        return _META in manifest and all(sha256(path / name) == manifest[name] for name in mine)
    except (OSError, StoreError):
        return False


def _sharding(tensors: Mapping[str, torch.Tensor], offsets: dict[str, list[int]]) -> dict[str, str]:
    """The note by which torch's own reader of sharded safetensors finds what part of a tensor a file holds."""
    places = {name: {"saved_offsets": offsets[name]} for name in tensors}
    return {"DCP_SHARDING_INFO": json.dumps(places), "DCP_VERSION": "1.0", "format": "pt"}


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
