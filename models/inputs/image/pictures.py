"""A picture of any size as the levels that a model takes: one function for training, servers and edge bundles.

The text of this file goes into edge bundles (`models/export/bundle.py`): it needs numpy and Pillow alone.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF")
MOST_PIXELS = 80_000_000
"""Of a picture, at most: a file of few bytes may unfold into many gigabytes. Pillow warns beyond 89 million."""
_EXPECTED = "expected a whole file of PNG, JPEG, WebP or GIF"


class PictureShape(NamedTuple):
    """What pictures become.

    Attributes:
        height: Pixels.
        width: Pixels.
        channels: 1 for grey, 3 for colours.
        resize: `crop` fills the shape and cuts the longer side, `pad` fits the picture and fills the rest with the
            background, `stretch` changes the ratio of the sides.
        background: The colour below transparent pixels and around padded pictures.
    """

    height: int
    width: int
    channels: int
    resize: str
    background: str


def shape_of(image: Mapping[str, Any]) -> PictureShape:
    """Return what pictures become by the keys of `data.image`, of which `resize` is set."""
    return PictureShape(**{name: image[name] for name in PictureShape._fields})


def is_file(content: bytes) -> bool:
    """Return whether bytes begin as a file of a picture does."""
    return content.startswith(_SIGNATURES)


def levels_of(value: bytes | np.ndarray, shape: PictureShape) -> np.ndarray:
    """Return a picture as uint8 (height, width, channel) of the shape; one that has it already stays as it is.

    A file is turned as its EXIF orientation says, and of an animation the first picture counts. Transparent pixels lie
    on the background. Colours become grey by ITU-R 601-2, 16 bits become 8, and the resampling is bicubic.

    Args:
        value: The bytes of a file; height x width x channels plain bytes; or an array (height, width) or (height,
            width, channel) of booleans or whole numbers with 1 to 4 channels: grey, with alpha, RGB, RGBA.
        shape: What it becomes.

    Raises:
        ValueError: It is no whole picture, or larger than `MOST_PIXELS`; without where, which the caller knows.
    """
    if isinstance(value, np.ndarray):
        return _fitted(_of_array(value), shape)
    is_plain = len(value) == shape.height * shape.width * shape.channels
    if not is_plain or is_file(value):
        try:
            return _fitted(_of_file(value, 2 * max(shape.height, shape.width)), shape)
        except ValueError:
            if not is_plain:  # the first pixels of a plain one may look like a file: #ffd8ff is a pink
                raise
    return np.frombuffer(value, np.uint8).reshape(shape[:3])


def _of_file(content: bytes, side: int) -> Any:
    """Return the upright picture of a file; of a large JPEG a smaller one, whose sides have `side` pixels or more."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as file:
            width, height = file.size
            if width * height <= MOST_PIXELS:
                file.draft(None, (side, side))
                file.load()
                return ImageOps.exif_transpose(file)
    except Exception as error:  # Pillow's readers raise many types on broken files
        reason = "of another format" if isinstance(error, UnidentifiedImageError) else error
        raise ValueError(f"{len(content)} bytes that cannot be read ({reason}), {_EXPECTED}") from error
    raise ValueError(f"{width} x {height} pixels, expected at most {MOST_PIXELS:,}")


def _of_array(levels: np.ndarray) -> Any:
    """Return the picture of an array."""
    from PIL import Image

    if levels.ndim == 3 and levels.shape[2] == 1:
        levels = levels[..., 0]
    channels = levels.shape[2] if levels.ndim == 3 else 1
    if levels.dtype.kind not in "biu" or levels.ndim not in (2, 3) or channels > 4 or not levels.size:
        raise ValueError(
            f"{levels.dtype} of shape {list(levels.shape)}, expected whole numbers from 0 to 255, (height, width) or "
            "(height, width, channel) with at most 4 channels"
        )
    if levels.dtype.kind == "b":
        levels = levels * np.uint8(255)
    elif levels.dtype == np.uint16:
        levels = _eight_bits(levels)
    elif levels.min() < 0 or levels.max() > 255:
        raise ValueError(f"levels from {levels.min()} to {levels.max()}, expected 0 to 255")
    return Image.fromarray(np.ascontiguousarray(levels.astype(np.uint8)))


def _eight_bits(levels: np.ndarray) -> np.ndarray:
    """Return levels of 16 bits as uint8: Pillow would cut what is above 255."""
    narrow: np.ndarray = np.rint(np.clip(levels, 0, 65535) / 257).astype(np.uint8)
    return narrow


def _fitted(picture: Any, shape: PictureShape) -> np.ndarray:
    """Return the levels of a picture once it is opaque, grey or of colours, and of the shape's size."""
    from PIL import Image, ImageOps

    if picture.mode.startswith("I"):
        picture = Image.fromarray(_eight_bits(np.asarray(picture)))
    if picture.has_transparency_data:
        clear = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", clear.size, shape.background), clear)
    mode, size = "L" if shape.channels == 1 else "RGB", (shape.width, shape.height)
    opaque, method = picture.convert(mode), Image.Resampling.BICUBIC
    if shape.resize == "crop":
        fitted = ImageOps.fit(opaque, size, method)
    elif shape.resize == "pad":
        fitted = ImageOps.pad(opaque, size, method, color=shape.background)
    else:
        fitted = opaque.resize(size, method)
    return np.asarray(fitted, np.uint8).reshape(shape[:3])
