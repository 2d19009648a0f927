"""Images as an input: their record."""

from __future__ import annotations

from typing import ClassVar, Literal

from models.inputs.record import InputRecord
from models.project_spec.blocks import Image


class ImageInput(InputRecord):
    """Images: uint8 (channel, height, width); the net's input is `(pixel / 255 - mean) / std` for each channel."""

    PLURAL: ClassVar[str] = "images"
    kind: Literal["image"] = "image"
    form: Literal["image"] = "image"
    image: Image
    mean: list[float]
    std: list[float]

    @property
    def summary(self) -> str:
        """Its shape."""
        return f"{self.image.height} x {self.image.width} x {self.image.channels} bytes"
