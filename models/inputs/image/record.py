"""Images as an input: their record."""

from __future__ import annotations

from models.frozen_model import FrozenModel
from models.project_spec.blocks import Image


class ImageInput(FrozenModel):
    """Images: uint8 (channel, height, width); the net's input is `(pixel / 255 - mean) / std` for each channel."""

    image: Image
    mean: list[float]
    std: list[float]
