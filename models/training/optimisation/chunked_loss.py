"""Cross-entropy over many classes in chunks of rows: neither pass holds a whole float32 copy of the logits.

`F.cross_entropy` on half-precision logits keeps them in float32 too, with as many gradients in float32. This function
keeps the logits as the net returned them, one number a row, and a chunk.
Source: chunked cross-entropy as in Wijmans et al. 2024 (Cut Your Losses), without the fusion into the last layer.
"""

from __future__ import annotations

from typing import Any

import torch

MANY_CLASSES = 1024
"""With fewer classes the logits are small beside the activations of a net."""
# Measured on one thread, 4,096 rows of 32,768 classes with the last layer: in chunks of 4 MB 1.15 CPU-s in bf16 and
# 1.84 in fp32, whole 1.89 and 2.16, at a peak of 4.3 and 8.3 bytes a logit instead of 12. On a GPU it has not run;
# there larger chunks keep the launches few.
_CHUNK_BYTES = {"cpu": 4 << 20, "cuda": 256 << 20}


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor, smoothing: float) -> torch.Tensor:
        losses, totals = (torch.empty(len(logits), dtype=torch.float32, device=logits.device) for _ in range(2))
        for part in _chunks(logits):
            rows = logits[part].float()
            total = rows.logsumexp(dim=1)
            target_scores = rows.gather(1, target[part].unsqueeze(1)).squeeze(1)
            losses[part] = total - (1 - smoothing) * target_scores
            if smoothing:
                losses[part] -= smoothing * rows.mean(dim=1)
            totals[part] = total
        ctx.save_for_backward(logits, target, totals)
        ctx.smoothing = smoothing
        return losses

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logits, target, totals = ctx.saved_tensors
        [of_losses] = gradients
        of_logits = torch.empty_like(logits)
        for part in _chunks(logits):
            rows = (logits[part].float() - totals[part].unsqueeze(1)).exp_()
            if ctx.smoothing:
                rows -= ctx.smoothing / logits.shape[1]
            rows.scatter_add_(1, target[part].unsqueeze(1), torch.full_like(rows[:, :1], ctx.smoothing - 1))
            of_logits[part] = rows.mul_(of_losses[part].unsqueeze(1))
        return of_logits, None, None


def chunked_cross_entropy(logits: torch.Tensor, target: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
    """Return the cross-entropy of each row, float32 (row,).

    Args:
        logits: (row, class), in any floating type.
        target: Each row's class, int64 (row,).
        smoothing: Share of each target that all classes get in equal parts.
    """
    losses: torch.Tensor = _ChunkedCrossEntropy.apply(logits, target, smoothing)  # type: ignore[no-untyped-call]
    return losses


def _chunks(logits: torch.Tensor) -> list[slice]:
    rows = max(1, _CHUNK_BYTES[logits.device.type] // (4 * logits.shape[1]))
    return [slice(low, low + rows) for low in range(0, len(logits), rows)]
