"""The `data.image` and `data.text` blocks of a spec: the examples of images and of texts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from models.project_spec.block import MOST_WHOLE, SpecBlock, Whole


class Image(SpecBlock):
    """The shape of an image: the column holds height x width x channels bytes, or pictures that become so."""

    column: str = "image"
    height: Whole = Field(gt=0, description="Pixels.")
    width: Whole = Field(gt=0, description="Pixels.")
    channels: Whole = Field(1, ge=1, description="1 for grey, 3 for colours.")
    resize: Literal["crop", "pad", "stretch"] | None = Field(
        None,
        description="The column holds pictures of any size: bytes of files (PNG, JPEG, WebP, GIF), paths of such "
        "files, or arrays. crop fills the shape and cuts what is beyond it, pad fits the picture in and fills the rest "
        "with the background, stretch changes the ratio of the sides.",
    )
    background: Literal["white", "black"] = Field(
        "white", description="With `resize`: the colour below transparent pixels, and around padded pictures."
    )

    @model_validator(mode="after")
    def _bytes_can_be_held(self) -> Image:
        if self.height * self.width * self.channels > MOST_WHOLE:
            raise ValueError(
                f"an image of {self.height} x {self.width} x {self.channels} (height, width, channels) is more than "
                f"the {MOST_WHOLE} bytes that one may have: correct the shape"
            )
        return self

    @model_validator(mode="after")
    def _resized_to_grey_or_colours(self) -> Image:
        if self.resize is not None and self.channels not in (1, 3):
            raise ValueError(f"resize makes pictures grey or of colours, got channels: {self.channels}: say 1 or 3")
        return self


class Text(SpecBlock):
    """The examples of a text: windows of `length` characters, each of which predicts the next one."""

    column: str = "text"
    length: Whole = Field(128, ge=2, description="Characters that the model sees at most.")
    stride: Whole | None = Field(
        None, ge=1, description="Characters between the starts of training windows; default: length, so none overlap."
    )
