"""Inputs and outputs in the words of the Open Inference Protocol."""

from pathlib import Path

import pytest

from models.inference.predict import session
from models.inference.tensor_specs import TensorSpec, port_of
from tests.served_models import write_served


@pytest.mark.parametrize(
    ("task", "ports"),
    [
        ("binary", [TensorSpec("x", "FP64", (-1,)), TensorSpec("c", "BYTES", (-1,))]),
        ("image", [TensorSpec("image", "UINT8", (-1, 2, 3, 1))]),
        ("language", [TensorSpec("text", "INT64", (-1, -1))]),
    ],
)
def test_a_size_that_may_vary_is_minus_one(tmp_path: Path, task: str, ports: list[TensorSpec]) -> None:
    write_served(tmp_path, task)
    assert [port_of(value) for value in session(tmp_path / "model.onnx").get_inputs()] == ports
