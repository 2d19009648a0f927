"""What the encoder and the decoder share: one product for all heads, rotary positions, and blocks that ranks share.

Legend: B examples, T positions, H heads, D width of a head.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import nn

from models.nets.splitting import Style

_WAVELENGTH = 10_000.0


class AttentionBlocks(nn.Module):
    """A net of equal blocks with attention, which ranks share by whole heads.

    Attributes:
        layers: The blocks.
        heads: Attention heads of a block.
        block_plan: The split of a block's layers by their paths in the block.
    """

    layers: nn.ModuleList
    heads: int
    block_plan: dict[str, Style]

    def blocks(self) -> nn.ModuleList:
        """Return the layers."""
        return self.layers

    def tensor_plan(self) -> dict[str, Style]:
        """Split the attention by heads, and the feed-forward net by its inner width."""
        paths = (
            (f"layers.{i}.{path}", style) for i in range(len(self.layers)) for path, style in self.block_plan.items()
        )
        return dict(paths)

    def tensor_parts(self) -> int:
        """Return the number of heads."""
        return self.heads


def query_key_value(width: int) -> nn.Linear:
    """Return the layer that computes queries, keys and values in one product.

    Its outputs are ordered by head, then by query, key and value, so that ranks can share it by whole heads.
    """
    return nn.Linear(width, 3 * width)


def by_head(output: torch.Tensor, head_width: int) -> torch.Tensor:
    """Return (3, B, H, T, D), queries, keys and values, from the output (B, T, H * 3 * D) of the layer: a view."""
    heads: torch.Tensor = output.unflatten(-1, (-1, 3, head_width))  # type: ignore[no-untyped-call]
    return heads.permute(3, 0, 2, 1, 4)


def rotated(x_BHTD: torch.Tensor) -> torch.Tensor:
    """Rotate each pair of features by an angle that grows with the position, so that attention depends on distances.

    There may be more dimensions before these. Any length works. Source: Su et al. 2021, equation 34.
    """
    half = x_BHTD.shape[-1] // 2
    cos_TD, sin_TD = _tables(x_BHTD.shape[-2], half, x_BHTD.device, x_BHTD.dtype)
    first, second = x_BHTD[..., :half], x_BHTD[..., half:]
    return torch.cat([first * cos_TD - second * sin_TD, first * sin_TD + second * cos_TD], dim=-1)


def _tables(length: int, half: int, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the cosines and sines of all positions, (T, half); made once for each length, device and type."""
    if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        cos_TD, sin_TD = _unfused_angles(length, half, device, dtype)
        return cos_TD, sin_TD
    if type(length) is not int or not _makes_plain_tensors(device):
        return _angles(length, half, device, dtype)  # a graph holds the operations, and a fake tensor is of one trace
    return _cached_angles(length, half, device, dtype)


def _makes_plain_tensors(device: torch.device) -> bool:
    probe = torch.empty(0, device=device)
    return type(probe) is torch.Tensor and not torch.is_inference(probe)


def _angles(length: int, half: int, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    step = torch.arange(half, device=device, dtype=torch.float32)
    place = torch.arange(length, device=device, dtype=torch.float32)
    angle = place.unsqueeze(1) * torch.exp(step * (-math.log(_WAVELENGTH) / half))
    return angle.cos().to(dtype), angle.sin().to(dtype)


@torch.library.custom_op("loopline::rotation_angles", mutates_args=())
def _unfused_angles(
    length: int, half: int, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the angles to compiled code, which would else compute them again for each number that it rotates.

    They are made anew in each call: a kept table could be overwritten by compiled code, or lie in a replay's memory.
    """
    return _angles(length, half, device, dtype)


@_unfused_angles.register_fake
def _(length: int, half: int, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (length, half)
    return torch.empty(shape, device=device, dtype=dtype), torch.empty(shape, device=device, dtype=dtype)


_cached_angles = functools.lru_cache(maxsize=32)(_angles)
