"""The digest of a step's outputs."""

from models.pipeline.records import digest_of


def test_the_digest_follows_names_and_hashes_not_places() -> None:
    assert digest_of({"a/model.onnx": "1"}) == digest_of({"b/c/model.onnx": "1"})
    assert digest_of({"a/model.onnx": "1"}) != digest_of({"a/model.onnx": "2"})
    assert digest_of({"a/model.onnx": "1"}) != digest_of({"a/other.onnx": "1"})
