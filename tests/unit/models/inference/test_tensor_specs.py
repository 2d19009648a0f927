"""Inputs and outputs in the words of the Open Inference Protocol."""

from pathlib import Path

import pytest

from models.inference.predict import session
from models.inference.tensor_specs import Port, port_of
from tests.served_models import write_served


@pytest.mark.parametrize(
    ("task", "ports"),
    [
        ("binary", [Port("x", "FP64", (-1,)), Port("c", "BYTES", (-1,))]),
        ("image", [Port("image", "UINT8", (-1, 2, 3, 1))]),
        ("language", [Port("text", "INT64", (-1, -1))]),
    ],
)
def test_a_size_that_may_vary_is_minus_one(tmp_path: Path, task: str, ports: list[Port]) -> None:
    write_served(tmp_path, task)
    assert [port_of(value) for value in session(tmp_path / "model.onnx").get_inputs()] == ports
