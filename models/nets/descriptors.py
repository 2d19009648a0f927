"""Fixed descriptors of a picture and a linear model of them: HOG, a colour histogram, whitened patches, few pixels.

The descriptors have no weights to learn: all that training pictures give them are the filters of the patches
(`models/training/convex/descriptors.py`). The same module makes them in training and, as ONNX nodes, in the graph. Each
step is continuous, but for the choice of the strongest channel: torch and ONNX Runtime round sums in another order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from models.nets.linear import Linear
from models.nets.sizes import Sizes

WHITE = 255
CONTRAST = 10.0
"""Added to the variance of a patch, in squared levels: a patch of noise alone stays small."""
_DIRECTIONS = 16
"""Bins of a gradient's direction; opposite ones are also counted together."""
_CELLS, _FEW_CELLS, _TINY = 7, 4, 8
"""Cells of the two histograms of gradients, on each side, and pixels of the least picture on its longer one."""
_LARGEST, _LARGEST_OF_PATCHES, _SMALLEST = 64, 32, 8
"""Pixels of the longer side at which gradients and patches are read: a larger picture is made smaller, down to the
last for the shorter side."""
_STRIDE, _POOLS = 2, 2
"""Pixels between two patches, and cells of their answers on each side."""
_PATCH, _SMALL_PATCH = 6, 4
"""Side of a patch; the second one where a picture is hardly larger than the first."""
_FLOOR = 4.0
"""Added to the squared gradients of a block, so that a flat one has none."""
_CLIP = 0.2
"""Most that a direction counts for in a block."""
_TIE = 1 + 2**-10
"""A channel's squared gradient is larger by this factor, or rounding would choose between equal ones."""
_COLOURS, _GREYS, _COLOUR_CELLS = 4, 12, 3
"""Levels of a channel in the histogram of colours, and of a grey one; cells on each side."""
_MOST_JOINT = 3
"""Channels whose levels are counted together; of more, each channel has a histogram of its own."""


class Sides(NamedTuple):
    """Pixels of the sides of a picture."""

    height: int
    width: int

    def reduced(self, longest: int, smallest: int = _SMALLEST) -> Sides:
        """Return sides in proportion, the longer one `longest` at most; none is made smaller than `smallest`."""
        factor = min(1.0, longest / max(self))
        return Sides(*(min(side, max(smallest, round(side * factor))) for side in self))


class Means(nn.Module):
    """Weighted means over the pixels of maps: (batch, channel, height, width) -> (batch, channel, row, column).

    Args:
        rows: The weights of the pixels of a column (row, height), which sum up to 1.
        columns: Those of the pixels of a row (column, width).
    """

    rows: torch.Tensor
    columns: torch.Tensor

    def __init__(self, rows: torch.Tensor, columns: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("columns", columns.T.contiguous(), persistent=False)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Return the means."""
        return torch.matmul(torch.matmul(self.rows, maps), self.columns)

    @classmethod
    def of_areas(cls, before: Sides, after: Sides) -> Means:
        """Return a smaller picture of so many pixels, each the mean of the area that it covers."""
        return cls(_areas(after.height, before.height), _areas(after.width, before.width))

    @classmethod
    def of_cells(cls, before: Sides, num: int) -> Means:
        """Return the means of `num` cells on each side; a pixel counts for all cells around it."""
        return cls(_tents(min(num, before.height), before.height), _tents(min(num, before.width), before.width))


class Gradients(nn.Module):
    """Histograms of the directions of gradients, in cells of two sizes.

    Args:
        sides: Of the pictures.
    """

    cosines: torch.Tensor
    sines: torch.Tensor

    def __init__(self, sides: Sides) -> None:
        super().__init__()
        angles = torch.arange(_DIRECTIONS, dtype=torch.float64) * (2 * math.pi / _DIRECTIONS)
        self.register_buffer("cosines", angles.cos().float().view(-1, 1, 1), persistent=False)
        self.register_buffer("sines", angles.sin().float().view(-1, 1, 1), persistent=False)
        self.cells = nn.ModuleList(Means.of_cells(sides, num) for num in (_CELLS, _FEW_CELLS))

    def forward(self, levels: torch.Tensor) -> torch.Tensor:
        """Return the histograms (batch, feature) of levels (batch, channel, height, width)."""
        votes = self.votes(levels)
        return torch.cat([_normalised(means(votes)) for means in self.cells], dim=1)

    def votes(self, levels: torch.Tensor) -> torch.Tensor:
        """Return what each direction gets of the channel with the strongest gradient (batch, direction, ...).

        A direction gets what of the gradient points its way beyond the next one: neighbours share it, without angles.
        """
        roots = F.pad(levels.sqrt() * 16, (1, 1, 1, 1), mode="replicate")
        across = roots[:, :, 1:-1, 2:] - roots[:, :, 1:-1, :-2]
        down = roots[:, :, 2:, 1:-1] - roots[:, :, :-2, 1:-1]
        squared = across.square() + down.square()
        strongest = across[:, :1], down[:, :1], squared[:, :1]
        for channel in range(1, levels.shape[1]):
            part = slice(channel, channel + 1)
            is_stronger = squared[:, part] > strongest[2] * _TIE
            strongest = (
                torch.where(is_stronger, across[:, part], strongest[0]),
                torch.where(is_stronger, down[:, part], strongest[1]),
                torch.where(is_stronger, squared[:, part], strongest[2]),
            )
        apart = math.cos(2 * math.pi / _DIRECTIONS)
        projected = strongest[0] * self.cosines + strongest[1] * self.sines
        return F.relu(projected - apart * strongest[2].sqrt()) / (1 - apart)


class Patches(nn.Module):
    """The answers of whitened patches as filters, in cells.

    Args:
        channels: Of the pictures.
        sides: Of the pictures.
        num: Filters.
    """

    filters: torch.Tensor
    bias: torch.Tensor
    threshold: torch.Tensor

    def __init__(self, channels: int, sides: Sides, num: int) -> None:
        super().__init__()
        self.side = min(*sides, _PATCH if min(sides) > 2 * _PATCH else _SMALL_PATCH)
        self.register_buffer("filters", torch.zeros(num, channels, self.side, self.side))
        self.register_buffer("bias", torch.zeros(num))
        self.register_buffer("threshold", torch.tensor(0.0))
        answers = Sides(*((length - self.side) // _STRIDE + 1 for length in sides))
        self.cells = Means.of_cells(answers, _POOLS)

    def forward(self, levels: torch.Tensor) -> torch.Tensor:
        """Return the means of what answers exceed the threshold by, and their opposites (batch, feature)."""
        mean = F.avg_pool2d(levels.mean(dim=1, keepdim=True), self.side, _STRIDE)
        squares = F.avg_pool2d(levels.square().mean(dim=1, keepdim=True), self.side, _STRIDE)
        contrast = (F.relu(squares - mean.square()) + CONTRAST).sqrt()
        answers = F.conv2d(levels, self.filters, stride=_STRIDE) - mean * self.filters.sum((1, 2, 3)).view(-1, 1, 1)
        answers = answers / contrast + self.bias.view(-1, 1, 1)
        both = [self.cells(F.relu(signed - self.threshold)) for signed in (answers, -answers)]
        return torch.cat(both, dim=1).flatten(1)


class Colours(nn.Module):
    """Shares of the levels of colours in cells; a pixel counts for both levels that it lies between.

    Args:
        channels: Of the pictures.
        sides: Of the pictures.
    """

    levels: torch.Tensor

    def __init__(self, channels: int, sides: Sides) -> None:
        super().__init__()
        num = _GREYS if channels == 1 else _COLOURS
        self.register_buffer("levels", torch.arange(num, dtype=torch.float32).view(-1, 1, 1), persistent=False)
        self.step = (num - 1) / WHITE
        self.join = _together if channels <= _MOST_JOINT else _side_by_side
        self.cells = Means.of_cells(sides, _COLOUR_CELLS)

    def forward(self, levels: torch.Tensor) -> torch.Tensor:
        """Return the roots of the shares (batch, feature), for the levels of pixels (batch, channel, height, width)."""
        by_channel = [
            F.relu(1 - (levels[:, channel : channel + 1] * self.step - self.levels).abs())
            for channel in range(levels.shape[1])
        ]
        counts = by_channel[0]
        for shares in by_channel[1:]:
            counts = self.join(counts, shares)
        shares_of_cells: torch.Tensor = self.cells(counts)
        return shares_of_cells.sqrt().flatten(1)


class Descriptors(nn.Module):
    """A linear model of the descriptors of a picture.

    Args:
        sizes: Of images.
        num_patches: Filters of whitened patches.
    """

    mean: torch.Tensor
    std: torch.Tensor
    shift: torch.Tensor
    scale: torch.Tensor

    def __init__(self, sizes: Sizes, num_patches: int) -> None:
        super().__init__()
        channels, sides = sizes.image[0], Sides(*sizes.image[1:])
        large, small = sides.reduced(_LARGEST), sides.reduced(_LARGEST_OF_PATCHES)
        self.register_buffer("mean", torch.zeros(channels, 1, 1))
        self.register_buffer("std", torch.ones(channels, 1, 1))
        self.large, self.small = Means.of_areas(sides, large), Means.of_areas(sides, small)
        self.tiny = Means.of_areas(sides, sides.reduced(_TINY, smallest=1))
        self.gradients = Gradients(large)
        self.colours = Colours(channels, small)
        self.patches = Patches(channels, small, num_patches)
        with torch.no_grad():
            num = self.features(torch.zeros(1, channels, *sides)).shape[1]
        self.register_buffer("shift", torch.zeros(num))
        self.register_buffer("scale", torch.ones(num))
        self.head = Linear(Sizes("table", sizes.task, num_numeric=num, num_outputs=sizes.num_outputs))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return (batch, num_outputs) from image (batch, channel, height, width)."""
        output: torch.Tensor = self.head((self.features(image) - self.shift) * self.scale)
        return output

    def features(self, image: torch.Tensor) -> torch.Tensor:
        """Return the descriptors (batch, feature) of standardised pixels (batch, channel, height, width)."""
        levels = self.levels(image)
        small = self.small(levels)
        parts = [self.gradients(self.large(levels)), self.colours(small), self.tiny(levels).flatten(1)]
        return torch.cat([*parts, self.patches(small)], dim=1)

    def levels(self, image: torch.Tensor) -> torch.Tensor:
        """Return the levels of pixels, whole numbers from 0 to 255, that were standardised."""
        return torch.round((image * self.std + self.mean) * WHITE)


def _normalised(signed: torch.Tensor) -> torch.Tensor:
    """Return a histogram by the strength of the four blocks of cells around each cell (batch, feature).

    Source: Felzenszwalb et al., Object detection with discriminatively trained part-based models (2010), section 6.
    """
    height, width = signed.shape[2:]
    half = _DIRECTIONS // 2
    unsigned = signed[:, :half] + signed[:, half:]
    energy = F.pad(unsigned.square().sum(dim=1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    pairs = energy[:, :, 1:] + energy[:, :, :-1]
    blocks = (pairs[:, :, :, 1:] + pairs[:, :, :, :-1] + _FLOOR).sqrt()
    around = [blocks[:, :, top : top + height, start : start + width] for top in (0, 1) for start in (0, 1)]
    both = torch.cat([signed, unsigned], dim=1)
    clipped = [(both / strength).clamp(max=_CLIP) for strength in around]
    texture = [part[:, _DIRECTIONS:].sum(dim=1, keepdim=True) for part in clipped]
    return torch.cat([clipped[0] + clipped[1] + clipped[2] + clipped[3], *texture], dim=1).flatten(1)


def _together(counts: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    return (counts.unsqueeze(2) * shares.unsqueeze(1)).flatten(1, 2)


def _side_by_side(counts: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    return torch.cat([counts, shares], dim=1)


def _areas(num: int, side: int) -> torch.Tensor:
    """Return the shares (num, side) of pixels in equal stretches of a side."""
    ends = torch.linspace(0, side, num + 1, dtype=torch.float64)
    start = torch.arange(side, dtype=torch.float64)
    shares = (torch.minimum(ends[1:, None], start + 1) - torch.maximum(ends[:-1, None], start)).clamp(min=0)
    return (shares / shares.sum(dim=1, keepdim=True)).float()


def _tents(num: int, side: int) -> torch.Tensor:
    """Return the shares (num, side) of pixels in cells whose weight falls to nothing at the next cell's middle."""
    place = (torch.arange(side, dtype=torch.float64) + 0.5) / side * num - 0.5
    place = place.clamp(0, num - 1)  # beyond the middle of an outer cell a pixel is that cell's alone
    shares = (1 - (place - torch.arange(num, dtype=torch.float64)[:, None]).abs()).clamp(min=0)
    return (shares / shares.sum(dim=1, keepdim=True)).float()


def build(sizes: Sizes, patches: int = 200, l2: float = 300.0, iterations: int = 100) -> nn.Module:
    """Build the net; `iterations` and `l2` are for the fit, which chooses an `l2` that is not set by validation."""
    del l2, iterations
    return Descriptors(sizes, patches)
