"""Rows of streamed examples on their way from the host's memory to a GPU, beside its computation."""

from __future__ import annotations

import functools

import torch


def rows_on(device: torch.device, source: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return the rows `indices` of a tensor in the host's memory, on `device`.

    For a GPU they are gathered in pinned memory and copied by a stream of their own, so that neither this process nor
    the computation waits. A plain gather would give pageable memory, whose copy waits in spite of `non_blocking`.
    """
    if device.type != "cuda":
        return source.index_select(0, indices)
    staged = torch.empty((len(indices), *source.shape[1:]), dtype=source.dtype, pin_memory=True)
    torch.index_select(source, 0, indices, out=staged)
    copies, computation = _copies(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(copies):
        rows = staged.to(device, non_blocking=True)
    computation.wait_stream(copies)
    rows.record_stream(computation)  # or its memory could be given away while the computation still reads it
    return rows


@functools.cache
def _copies(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
