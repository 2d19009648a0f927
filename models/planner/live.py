"""Counts the live bytes of tensors while a net runs; with fake tensors, nothing is computed."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operations allocate, until they are freed; a view counts as part of its base.

    With fake tensors (`FakeTensorMode`), a net of any size takes no memory.

    Args:
        known: Tensors that do not count: weights, buffers, inputs.

    Attributes:
        now: Live bytes without weight gradients.
        gradients: Bytes of weight gradients, reported by `is_gradient`; they must outlive this count.
        peak: The peak of all live bytes.
        peak_without_gradients: The peak of `now`.
    """

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.gradients = 0
        self.peak = 0
        self.peak_without_gradients = 0
        self._seen: set[int] = set()
        for tensor in known:
            self._watch(tensor, count=False)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._watch(leaf, count=True)
        self.peak = max(self.peak, self.now + self.gradients)
        self.peak_without_gradients = max(self.peak_without_gradients, self.now)
        return out

    def is_gradient(self, tensor: torch.Tensor) -> None:
        """Count a tensor as a weight gradient from now on."""
        size = tensor.untyped_storage().nbytes()
        self.now -= size
        self.gradients += size

    def _watch(self, tensor: torch.Tensor, count: bool) -> None:
        storage = tensor.untyped_storage()
        key = StorageWeakRef(storage).cdata  # type: ignore[no-untyped-call]
        if key in self._seen:
            return
        self._seen.add(key)
        size = storage.nbytes() if count else 0
        self.now += size
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size
