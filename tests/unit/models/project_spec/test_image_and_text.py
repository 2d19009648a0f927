"""The shapes of images and texts."""

import pytest
from pydantic import ValidationError

from models.project_spec.blocks import Spec
from models.project_spec.image_and_text import Image, Text


def test_an_image_of_more_bytes_than_32_bits_count_is_refused() -> None:
    assert Image(height=4096, width=4096, channels=3).channels == 3
    with pytest.raises(ValidationError, match=r"an image of 65536 x 65536 x 1 .* is more than the 2147483647 bytes"):
        Image(height=65536, width=65536)


def test_a_stride_beyond_32_bits_is_refused() -> None:
    assert Text(stride=2**31 - 1).stride == 2**31 - 1
    with pytest.raises(ValidationError, match="less than or equal to 2147483647"):
        Text(stride=2**31)


def test_patches_of_a_pretraining_fit_the_image() -> None:
    data = {"source": "a.parquet", "target": "y", "kind": "image", "image": {"height": 8, "width": 6}}
    document = {"name": "tiny", "data": data, "train": {"pretrain": {"patch": 8}}}
    assert Spec.model_validate(document).train.pretrain is not None
    document["train"] = {"pretrain": {"patch": 9}}
    with pytest.raises(ValidationError, match=r"train.pretrain.patch: got 9, expected at most the longer side"):
        Spec.model_validate(document)
