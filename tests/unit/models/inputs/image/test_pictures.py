"""Pictures of any size and form become levels of one shape: real files, as cameras and tools write them."""

import io

import numpy as np
import pytest
from PIL import Image

from models.inputs.image.pictures import PictureShape, levels_of

GREY = PictureShape(4, 6, 1, "stretch", "white")
COLOURS = GREY._replace(channels=3)
LEVELS = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
RED, BLUE = (255, 0, 0), (0, 0, 255)
ORIENTATION = 0x0112


def encoded(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def halves(left: object, right: object, mode: str = "RGB", size: tuple[int, int] = (12, 8)) -> Image.Image:
    """A picture whose left and right half have one colour each."""
    picture = Image.new(mode, size, left)  # type: ignore[arg-type]
    picture.paste(right, (size[0] // 2, 0, *size))  # type: ignore[arg-type]
    return picture


@pytest.mark.parametrize("resize", ["crop", "pad", "stretch"])
def test_a_picture_of_the_shape_stays_as_it_is(resize: str) -> None:
    shape = GREY._replace(resize=resize)
    for value in (
        LEVELS,
        LEVELS[..., None],
        LEVELS.astype(np.int64),
        LEVELS.tobytes(),
        encoded(Image.fromarray(LEVELS)),
    ):
        np.testing.assert_array_equal(levels_of(value, shape)[..., 0], LEVELS)


def test_plain_pixels_that_begin_like_a_file_stay_as_they_are() -> None:
    pink = np.full((4, 6, 3), (255, 216, 255), np.uint8)
    np.testing.assert_array_equal(levels_of(pink.tobytes(), COLOURS), pink)


def test_pictures_are_cropped_padded_or_stretched() -> None:
    wide = encoded(halves(RED, BLUE, size=(40, 8)))
    square = PictureShape(8, 8, 3, "stretch", "white")
    stretched = levels_of(wide, square)
    assert (stretched[:, 0] == RED).all()
    assert (stretched[:, -1] == BLUE).all()
    padded = levels_of(wide, square._replace(resize="pad"))
    assert (padded[[0, -1]] == 255).all()
    assert (padded[4, 0] == RED).all()
    assert (levels_of(wide, square._replace(resize="pad", background="black"))[[0, -1]] == 0).all()
    left = encoded(halves(RED, BLUE, size=(8, 40)).transpose(Image.Transpose.ROTATE_90))
    cropped = levels_of(left, square._replace(resize="crop"))
    assert {tuple(pixel) for pixel in cropped[[0, -1]].reshape(-1, 3)} == {RED, BLUE}


@pytest.mark.parametrize(("kind", "tolerance"), [("PNG", 0), ("JPEG", 12), ("WEBP", 12), ("GIF", 3)])
def test_each_format_is_read(kind: str, tolerance: int) -> None:
    levels = levels_of(encoded(halves(RED, BLUE), kind), COLOURS).astype(int)
    assert abs(levels[:, 0] - RED).max() <= tolerance
    assert abs(levels[:, -1] - BLUE).max() <= tolerance


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_file_stands_upright_however_the_camera_was_held(orientation: int) -> None:
    upright = Image.fromarray(LEVELS.repeat(8, axis=0).repeat(8, axis=1))
    turns = Image.Transpose
    held = {2: turns.FLIP_LEFT_RIGHT, 3: turns.ROTATE_180, 4: turns.FLIP_TOP_BOTTOM, 5: turns.TRANSPOSE,
            6: turns.ROTATE_90, 7: turns.TRANSVERSE, 8: turns.ROTATE_270}  # fmt: skip
    stored = upright.transpose(held[orientation]) if orientation in held else upright
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    levels = levels_of(encoded(stored, "JPEG", exif=exif, quality=98), GREY._replace(resize="crop"))[..., 0]
    assert abs(levels.astype(int) - LEVELS).max() <= 6


@pytest.mark.parametrize("background", ["white", "black"])
def test_transparent_pixels_lie_on_the_background(background: str) -> None:
    ground = 255 if background == "white" else 0
    clear = halves((255, 0, 0, 255), (0, 255, 0, 0), "RGBA")
    palette = halves(0, 1, "P")
    palette.putpalette([*RED, *BLUE])
    grey = halves((100, 255), (100, 0), "LA")
    shape = COLOURS._replace(background=background)
    for content in (encoded(clear), encoded(clear, "WEBP", lossless=True), encoded(palette, transparency=1)):
        levels = levels_of(content, shape)
        assert (levels[:, 0] == RED).all()
        assert (levels[:, -1] == ground).all()
    levels = levels_of(encoded(grey), shape._replace(channels=1))
    assert (levels[:, 0] == 100).all()
    assert (levels[:, -1] == ground).all()
    np.testing.assert_array_equal(levels_of(np.asarray(clear), shape), levels_of(encoded(clear), shape))


def test_sixteen_bits_become_eight() -> None:
    wide = LEVELS.astype(np.uint16) * 257
    for value in (encoded(Image.fromarray(wide)), wide):
        np.testing.assert_array_equal(levels_of(value, GREY)[..., 0], LEVELS)


def test_colours_become_grey_and_grey_becomes_colours() -> None:
    assert (levels_of(encoded(halves(RED, BLUE)), GREY)[:, [0, -1], 0] == (76, 29)).all()
    np.testing.assert_array_equal(levels_of(LEVELS, COLOURS), LEVELS[..., None].repeat(3, axis=2))
    assert set(np.unique(levels_of(encoded(halves(0, 1, "1")), GREY))) >= {0, 255}
    assert set(np.unique(levels_of(LEVELS > 100, GREY))) == {0, 255}


def test_colours_of_print_are_read() -> None:
    levels = levels_of(encoded(halves((0, 255, 255, 0), (255, 255, 0, 0), "CMYK"), "JPEG", quality=98), COLOURS)
    assert abs(levels[:, 0].astype(int) - RED).max() <= 4
    assert abs(levels[:, -1].astype(int) - BLUE).max() <= 4


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "0 bytes that cannot be read .of another format., expected a whole file of PNG, JPEG, WebP or GIF"),
        (b"%PDF-1.7 not a picture", "of another format"),
        (encoded(halves(RED, BLUE), "BMP"), "of another format"),
        (encoded(Image.effect_noise((64, 64), 50))[:2000], "truncated"),
        (encoded(Image.effect_noise((64, 64), 50), "JPEG")[:1500], "truncated"),
        (encoded(Image.new("1", (9000, 9000))), "9000 x 9000 pixels, expected at most 80,000,000"),
        (LEVELS / 255, r"float64 of shape \[4, 6\], expected whole numbers from 0 to 255"),
        (LEVELS.astype(np.int64) * 10, "levels from 0 to 2300, expected 0 to 255"),
        (np.zeros((4, 6, 5), np.uint8), "at most 4 channels"),
        (np.zeros((0, 6), np.uint8), r"shape \[0, 6\]"),
    ],
)
def test_what_is_no_picture_is_refused(value: bytes | np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        levels_of(value, GREY)
