import numpy as np
import pyarrow as pa
import pytest

from models.errors import DataError
from models.inputs.image.rows import fit_pixels, pixels_of
from models.project_spec.blocks import Image


def test_pixels_agree_with_numpy():
    images = np.random.default_rng(0).integers(0, 256, (7, 4, 5, 3), dtype=np.uint8)
    part = fit_pixels(images, Image(height=4, width=5, channels=3))
    assert part.mean == pytest.approx((images / 255).mean((0, 1, 2)))
    assert part.std == pytest.approx((images / 255).std((0, 1, 2)))


IMAGE = Image(height=2, width=3, channels=1)


def test_bytes_become_pixels_whatever_the_chunks_and_slices():
    pixels = np.arange(30, dtype=np.uint8).reshape(5, 2, 3, 1)
    cells = [one.tobytes() for one in pixels]
    column = pa.chunked_array([pa.array(cells[:2]), pa.array(cells[2:])])
    assert np.array_equal(pixels_of(column, IMAGE), pixels)
    assert np.array_equal(pixels_of(column.slice(1, 3), IMAGE), pixels[1:4])


def test_no_image_is_an_empty_array():
    assert pixels_of(pa.chunked_array([], pa.binary()), IMAGE).shape == (0, 2, 3, 1)


def test_other_types_and_sizes_are_refused_with_the_rows():
    with pytest.raises(DataError, match="got type string, expected bytes"):
        pixels_of(pa.chunked_array([["text"]]), IMAGE)
    with pytest.raises(DataError, match=r"2 images have another size, first in rows 2, 3 \(5 bytes\)"):
        pixels_of(pa.chunked_array([[b"123456", b"12345", None]]), IMAGE)
