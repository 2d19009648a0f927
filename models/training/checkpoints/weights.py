"""Weights on disk: safetensors files, written atomically, and a hash that shows whether two models have the same bits.

Computing the hash needs no torch, so a process can recognise a finished job without importing torch.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import StoreError
from models.files import storing, whole_file

if TYPE_CHECKING:
    import torch
    from torch import nn

    from models.nets.sizes import Sizes
    from models.project_spec.blocks import Model


def weights_sha256(path: Path) -> str:
    """SHA-256 over the tensors of a safetensors file in the order of their names (name, type, shape, bytes).

    Raises:
        StoreError: The file is missing, truncated or no safetensors file.
    """
    from models.data.tensor_file import read_header

    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for name, tensor_header in sorted(read_header(file).items()):
                start, stop = tensor_header["data_offsets"]
                file.seek(start)
                content = file.read(stop - start)
                if len(content) != stop - start:
                    raise ValueError("cut short")
                digest.update(f"{name}\0{tensor_header['dtype']}\0{tensor_header['shape']}\0".encode())
                digest.update(content)
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise StoreError(f"{path}: cannot be read as safetensors ({error}): copy or make it again") from error
    return digest.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], note: dict[str, str] | None = None) -> None:
    """Write tensors to `path` and flush them to disk. Not atomic: write a temporary file, then rename it.

    Args:
        path: The file.
        tensors: By name.
        note: The format's own `__metadata__`.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with storing(path):
        try:
            save_file(_separate(tensors), path, note)
        except SafetensorError as error:
            raise StoreError(f"{path}: could not be written ({error}): free some space and run again") from error
        with path.open("rb") as file:
            os.fsync(file.fileno())


def save_weights(path: Path, tensors: Mapping[str, torch.Tensor]) -> str:
    """Write weights atomically; return their `weights_sha256`.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    with whole_file(path) as temporary:
        write_tensors(temporary, tensors)
        return weights_sha256(temporary)


def load_net(model: Model, sizes: Sizes, base: Path, weights: Path) -> nn.Module:
    """Return the net of `model` with the weights of a finished job, in evaluation mode on the CPU.

    Raises:
        StoreError: The file cannot be read, or holds the weights of another net.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from models.nets.build import build_net

    net = build_net(model, sizes, base)
    try:
        net.load_state_dict(load_file(weights))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise StoreError(
            f"{weights}: not the weights of {model.net}: {error}: remove the file and run again"
        ) from error
    return net.eval()


def _separate(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return contiguous CPU tensors that share no memory, as the format requires (tied weights are written twice)."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        if plain.numel() and plain.untyped_storage().data_ptr() in seen:
            plain = plain.clone()
        seen.add(plain.untyped_storage().data_ptr())
        separate[name] = plain
    return separate
