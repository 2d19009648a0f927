"""Rows of images (nested lists, base64, tensors) and of texts."""

import base64
import io
import re

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

from models.errors import DataError
from models.inference.one_column import ImageSchema, TextSchema
from models.inputs.image.pictures import levels_of, shape_of
from models.inputs.image.record import ImageInput
from models.project_spec.blocks import Image
from tests.finished_jobs import image_preparation
from tests.served_models import preparation_of

SCHEMA = ImageSchema(preparation_of("image"))
TEXTS = TextSchema(preparation_of("language"))
LEVELS = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
TEXT = base64.b64encode(LEVELS.tobytes()).decode()


def test_an_item_is_levels_in_nested_lists() -> None:
    schema = SCHEMA.item_schema()
    assert schema is not None
    assert jsonschema.Draft202012Validator(schema).is_valid(LEVELS.tolist())
    assert not jsonschema.Draft202012Validator(schema).is_valid(LEVELS.ravel().tolist())


def test_a_whole_number_may_be_written_with_a_point() -> None:
    np.testing.assert_array_equal(SCHEMA.from_array([LEVELS.astype(float).tolist()]).feed["image"], LEVELS[None])


@pytest.mark.parametrize("value", [TEXT, LEVELS.tolist(), LEVELS[:, :, 0].tolist(), LEVELS.ravel().tolist()])
def test_an_image_comes_as_bytes_or_as_lists(value: object) -> None:
    np.testing.assert_array_equal(SCHEMA.from_records([{"picture": value}]).feed["image"], LEVELS[None])
    np.testing.assert_array_equal(SCHEMA.from_columns({"image": [value]}).feed["image"], LEVELS[None])
    np.testing.assert_array_equal(SCHEMA.from_array([value, value]).feed["image"][1], LEVELS)


def test_columns_beside_the_image_are_kept_but_for_the_target() -> None:
    assert SCHEMA.from_records([{"picture": TEXT, "y": "no", "from": "here"}]).extra == {"from": ["here"]}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "got null"),
        (5, "got 5"),
        ("AAE", "no base64"),
        ("é", "no base64"),
        ("AAEC", "got 3 bytes, expected 6 = 2 x 3 x 1"),
        ([[0, 1], [2, 3]], "lists of 2 x 3 x 1"),
        ([[0, 1, 2], [3]], "lists of 2 x 3 x 1"),
        ([[0, 1, 2], [3, 4, 0.5]], "whole numbers"),
        ([[0, 1, 2], [3, 4, "5"]], "whole numbers"),
        ([[0, 1, 2], [3, 4, 256]], "levels from 0 to 256"),
        ([[0, 1, 2], [3, 4, -1]], "levels from -1 to 4"),
    ],
)
def test_an_image_that_does_not_do_is_told_with_its_row(value: object, said: str) -> None:
    with pytest.raises(DataError, match=f"row 2, column 'picture'.*{said}"):
        SCHEMA.from_records([{"picture": TEXT}, {"picture": value}])


def resizing_schema(**keys: str) -> ImageSchema:
    image = Image(column="picture", height=2, width=3, channels=1, **{"resize": "stretch", **keys})  # type: ignore[arg-type]
    preparation = image_preparation()
    pixels = preparation.required_pixels.model_copy(update={"image": image, "name": "picture"})
    return ImageSchema(preparation.model_copy(update={"inputs": [pixels]}))


def test_a_picture_of_any_size_is_served_as_it_is_trained() -> None:
    schema, wide = resizing_schema(), LEVELS[..., 0].repeat(7, axis=0).repeat(5, axis=1)
    stream = io.BytesIO()
    Pillow.fromarray(wide).save(stream, "PNG")
    trained = levels_of(stream.getvalue(), shape_of(schema._image.model_dump()))
    file = base64.b64encode(stream.getvalue()).decode()
    for value in (file, wide.tolist(), wide[..., None].tolist()):
        np.testing.assert_array_equal(schema.from_records([{"picture": value}]).feed["image"], trained[None])
    for value in (TEXT, LEVELS.tolist()):
        np.testing.assert_array_equal(schema.from_records([{"picture": value}]).feed["image"], LEVELS[None])
    assert jsonschema.Draft202012Validator(schema.record_schema()).is_valid({"picture": file})
    item = schema.item_schema()
    assert item is not None
    assert jsonschema.Draft202012Validator(item).is_valid(wide.tolist())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("AAE", "no base64, expected that of a file of PNG, JPEG, WEBP, GIF of any size"),
        ("AAEC", "got 3 bytes that cannot be read .of another format."),
        ([[0, 1], [2]], "expected whole numbers from 0 to 255"),
        ([[0, 0.5]], "expected whole numbers from 0 to 255"),
        ([[0, 256]], "got levels from 0 to 256, expected 0 to 255"),
        ([], "expected whole numbers from 0 to 255"),
    ],
)
def test_what_is_no_picture_of_any_size_is_told_with_its_row(value: object, said: str) -> None:
    with pytest.raises(DataError, match=f"row 2, column 'picture'.*{said}"):
        resizing_schema().from_records([{"picture": TEXT}, {"picture": value}])


def test_a_tensor_is_images_flat_or_not() -> None:
    for values in (LEVELS[None], LEVELS.reshape(1, 6), LEVELS[None].astype(np.int64)):
        np.testing.assert_array_equal(SCHEMA.from_tensors({"image": values}).feed["image"], LEVELS[None])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (LEVELS, r"got shape \[2, 3, 1\], expected \[rows, 2 x 3 x 1\]"),
        (LEVELS[None].astype(np.float32), "no whole numbers"),
        (LEVELS[None].astype(np.int64) - 1, "levels from -1"),
        (LEVELS[:0][None][:0], "got shape"),
    ],
)
def test_a_tensor_that_does_not_do_is_refused(values: np.ndarray, said: str) -> None:
    with pytest.raises(DataError, match=said):
        SCHEMA.from_tensors({"image": values})


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.data())
def test_the_schemas_pattern_is_that_of_the_bytes(height: int, width: int, channels: int, data: st.DataObject) -> None:
    size = height * width * channels
    pixels = ImageInput(name="image", image=Image(height=height, width=width, channels=channels), mean=[0.0], std=[1.0])
    preparation = preparation_of("image").with_inputs("image", [pixels])
    schema = ImageSchema(preparation).record_schema()["properties"]["image"]
    text = base64.b64encode(data.draw(st.binary(min_size=size, max_size=size))).decode()
    assert re.search(schema["pattern"], text)
    assert schema["minLength"] == schema["maxLength"] == len(text)


def test_images_come_as_bytes_from_a_table() -> None:
    schema = ImageSchema(image_preparation())
    size = 4 * 6 * 2
    feed = schema.from_arrow(pa.table({"image": [bytes(range(size)), bytes(size)]}))
    assert feed["image"].shape == (2, 4, 6, 2)
    with pytest.raises(DataError, match=r"given: .*1 images have another size, first in rows 8 "):
        schema.from_arrow(pa.table({"image": [bytes(size), b"short"]}), 7, "given")


@pytest.mark.parametrize(
    "rows",
    [
        TEXTS.from_records([{"line": "ab"}, {"line": None}]),
        TEXTS.from_columns({"text": ["ab", ""]}),
        TEXTS.from_array(["ab", None]),
        TEXTS.from_tensors({"text": np.array(["ab", ""], object)}),
        TEXTS.from_tensors({"text": np.array([["ab"], [""]], object)}),
    ],
)
def test_every_way_gives_an_array_of_texts(rows) -> None:
    assert rows.feed["text"].tolist() == ["ab", ""]
    assert rows.extra == {}


def test_other_columns_are_kept() -> None:
    assert TEXTS.from_records([{"line": "ab", "book": "Emma"}]).extra == {"book": ["Emma"]}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([5], "row 1, column 'line': got 5"),
        ([["a"]], "row 1, column 'line': got a list"),
        ([], "no rows"),
        ("ab", "expected a list"),
    ],
)
def test_what_is_no_text_is_refused(value: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        TEXTS.from_array(value)


@pytest.mark.parametrize("values", [np.zeros(1), np.full((1, 2), "a", object), np.zeros(0, object)])
def test_a_tensor_of_something_else_is_refused(values: np.ndarray) -> None:
    with pytest.raises(DataError, match="expected BYTES"):
        TEXTS.from_tensors({"text": values})


def test_the_schema_has_the_projects_own_column() -> None:
    assert TEXTS.record_schema()["required"] == ["line"]
    assert TEXTS.item_schema() == {"type": ["string", "null"]}


def test_a_record_without_text_is_told_with_its_row() -> None:
    with pytest.raises(DataError, match="row 2: the model takes 'line': got 'text'"):
        TEXTS.from_records([{"line": "ab"}, {"text": "ab"}])


def test_texts_come_from_a_table() -> None:
    assert TEXTS.from_arrow(pa.table({"line": ["ab", None]}))["text"].tolist() == ["ab", ""]
    with pytest.raises(DataError, match="column 'line' is int64, expected text"):
        TEXTS.from_arrow(pa.table({"line": [1]}))
