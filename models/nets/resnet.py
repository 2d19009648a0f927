"""A small residual net for images, learnt from scratch: convolution, pooling, residual blocks, mean, linear head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from models.nets.sizes import Sizes


class ResNet(nn.Module):
    """A residual net in channels-last memory, for any size of image.

    Source: He et al. (2016), Deep Residual Learning for Image Recognition, the form for small images.
    """

    def __init__(self, stem: nn.Sequential, blocks: nn.Sequential, head: nn.Linear) -> None:
        super().__init__()
        self.stem = stem
        self.blocks = blocks
        self.head = head

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return (batch, num_outputs) from image (batch, channel, height, width)."""
        output: torch.Tensor = self.head(self.features(image))
        return output

    def features(self, image: torch.Tensor) -> torch.Tensor:
        """Return (batch, channel), the input of the last layer."""
        hidden: torch.Tensor = self.blocks(self.stem(image.contiguous(memory_format=torch.channels_last)))
        return hidden.mean(dim=(2, 3))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside their input; with a stride of 2 the input goes through a 1x1 convolution."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.beside: nn.Module = nn.Identity()
        if stride > 1 or before != after:
            self.beside = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return (batch, after, height / stride, width / stride)."""
        output = F.relu(self.first_norm(self.first(hidden)))
        return F.relu(self.second_norm(self.second(output)) + self.beside(hidden))


def build(sizes: Sizes, width: int = 32, stages: int = 3) -> nn.Module:
    """Build a residual net: the stem is the first stage; each later one is a block, halves the sides, doubles channels.

    The first halving is a pooling after the stem's convolution, so that no block works on all pixels.
    """
    convolution = nn.Conv2d(sizes.image[0], width, 3, padding=1, bias=False)
    stem = nn.Sequential(convolution, nn.MaxPool2d(2, ceil_mode=True), nn.BatchNorm2d(width), nn.ReLU())
    channels = [width * 2**stage for stage in range(stages)]
    blocks = [ResidualBlock(before, 2 * before, 2 if before > width else 1) for before in channels[:-1]]
    net = ResNet(stem, nn.Sequential(*blocks), nn.Linear(channels[-1], sizes.num_outputs))
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
