"""Pictures that are equal and have different targets are named; equal ones of one target are not."""

import re

import pyarrow as pa
import pytest

from models.validation.alike_pictures import alike_pictures


@pytest.mark.parametrize(
    ("pixels", "answers", "names", "message"),
    [
        ([b"a", b"b", b"a"], ["cat", "cat", "dog"], (), "1 pictures equal another .* such as row 1 and row 3: keep"),
        ([b"a", b"a"], ["cat", "dog"], ("cat/1.png", "dog/2.png"), "such as cat/1.png and dog/2.png"),
        ([b"a", b"b", b"a"], ["cat", "dog", "cat"], (), None),
        ([None, None], ["cat", "dog"], (), None),
    ],
)
def test_equal_pictures_of_two_classes_are_named(pixels, answers, names, message):
    messages = alike_pictures(pa.table({"image": pa.array(pixels, pa.binary()), "y": answers}), "image", ["y"], names)
    assert [re.search(message or "^$", text) is not None for text in messages] == [True] * (message is not None)
