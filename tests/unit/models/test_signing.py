"""A signature holds for these files of this model by who knows the key, and for nothing else."""

import pytest

from models.signing import is_signed, signature

HASHES = {"model.onnx": "ab", "preparation.json": "cd"}


def test_it_holds_whatever_the_order_of_the_files():
    assert is_signed("key", "tiny", dict(reversed(HASHES.items())), signature("key", "tiny", HASHES))


@pytest.mark.parametrize(
    ("key", "model", "hashes"),
    [
        ("other", "tiny", HASHES),
        ("key", "other", HASHES),
        ("key", "tiny", {**HASHES, "model.onnx": "ef"}),
        ("key", "tiny", {"model.onnx": "ab"}),
        ("key", "tiny", {"model.onnx": "cd", "preparation.json": "ab"}),
    ],
)
def test_anything_else_is_not_signed(key, model, hashes):
    assert not is_signed(key, model, hashes, signature("key", "tiny", HASHES))


@pytest.mark.parametrize("given", ["", "no", "é"])
def test_what_is_no_signature_is_none(given):
    assert not is_signed("key", "tiny", HASHES, given)
