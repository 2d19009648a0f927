"""Image columns, bytes in height, width, channel order: as arrays, and the statistics of the training rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.errors import DataError
from models.inputs.image.pictures import is_file
from models.inputs.image.record import ImageInput
from models.inputs.raw_rows import KindRows, LearntInputs, RawRows, Tensors
from models.inputs.record import LearntFiles
from models.project_spec.blocks import Image


def pixels_of(column: pa.ChunkedArray, image: Image, positions: np.ndarray | None = None) -> np.ndarray:
    """Return images as uint8 (rows, height, width, channel).

    Args:
        column: The bytes of each image.
        image: Their shape.
        positions: The position of each row in the source (row,), from 0, for messages; default: all rows are here.

    Raises:
        DataError: Values are not bytes, are missing, or do not fit the spec's shape; names the first rows.
    """
    kind, size = column.type, image.height * image.width * image.channels
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
        raise DataError(
            f"data.image.column {image.column!r}: got type {kind}, expected bytes ({size} for each image, height x "
            "width x channel): give them as in `array.astype('uint8').tobytes()`"
        )
    column = column.cast(pa.large_binary())
    wrong = np.flatnonzero(pc.fill_null(pc.not_equal(pc.binary_length(column), size), True).to_numpy())
    if len(wrong):
        got = pc.binary_length(column)[int(wrong[0])].as_py()
        rows = (wrong if positions is None else positions[wrong])[:5] + 1
        are_files = is_file(column[int(wrong[0])].as_py() or b"")
        cure = "these are files: say `data.image.resize: crop`" if are_files else "correct data.image, or the source"
        raise DataError(
            f"data.image.column {image.column!r}: {len(wrong)} images have another size, first in rows "
            f"{', '.join(map(str, rows))} ({got} bytes), expected {size} = {image.height} x {image.width} x "
            f"{image.channels}: {cure}"
        )
    flat = np.concatenate([_bytes(chunk, size) for chunk in column.chunks] or [np.zeros(0, dtype=np.uint8)])
    return flat.reshape(-1, image.height, image.width, image.channels)


def _bytes(chunk: pa.Array, size: int) -> np.ndarray:
    start = int(np.frombuffer(chunk.buffers()[1], dtype=np.int64)[chunk.offset]) if len(chunk) else 0
    return np.frombuffer(chunk.buffers()[2] or b"", dtype=np.uint8)[start : start + len(chunk) * size]


def fit_pixels(images: np.ndarray, image: Image) -> ImageInput:
    """Compute mean and standard deviation of each channel, of pixels / 255.

    Args:
        images: uint8 (rows, height, width, channel), training rows only.
        image: The images' shape.
    """
    counts = np.stack([np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(image.channels)])
    levels = np.arange(256) / 255.0
    means = counts @ levels / counts.sum(axis=1)
    variances = counts @ levels**2 / counts.sum(axis=1) - means**2
    stds = [float(std) if std > 1e-6 else 1.0 for std in np.sqrt(np.maximum(variances, 0.0))]
    return ImageInput(name=image.column, image=image, mean=[float(mean) for mean in means], std=stds)


def _fit(names: Sequence[str], rows: RawRows, learnt: LearntInputs) -> list[ImageInput]:
    parts = []
    for name in names:
        image, column = rows.data.image, rows.table.column(name)
        assert image is not None  # images have a shape in the spec
        pixels = pixels_of(column, image, rows.positions)
        learnt.add(name, column.cast(pa.binary()))
        parts.append(fit_pixels(pixels[rows.train], image))
    return parts


def _values(column: pa.ChunkedArray, part: ImageInput) -> pa.ChunkedArray:
    pixels_of(column, part.image)  # raises and names the row if a shape differs
    return column.cast(pa.binary())


def _encode(rows: pa.Table, parts: Sequence[ImageInput], files: LearntFiles) -> Tensors:
    del files
    (part,) = parts
    return {"image": pixels_of(rows.column(part.name), part.image).transpose(0, 3, 1, 2)}


ROWS = KindRows(
    fit=_fit,
    values=_values,
    encode=_encode,
)
