"""Signature and input example of an exported graph, as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx

DTYPES = {"double": np.float64, "float": np.float32, "int64": np.int64, "string": np.str_, "uint8": np.uint8}
EXAMPLE_ROWS = 3


def signature(values: Iterable[onnx.ValueInfoProto]) -> list[dict[str, Any]]:
    """Return `{name, dtype, shape}` of each input or output; a dynamic dimension is given by its name, `batch`.

    dtype is one of `DTYPES`.
    """
    return [
        {
            "name": value.name,
            "dtype": onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower(),
            "shape": [part.dim_param or part.dim_value for part in value.type.tensor_type.shape.dim],
        }
        for value in values
    ]


def input_example(feed: Mapping[str, np.ndarray], rows: int = EXAMPLE_ROWS) -> dict[str, list[Any]]:
    """Return the first rows of a feed as JSON: nested lists by input name, null for a missing number."""
    return {name: _plain(values[:rows].tolist()) for name, values in feed.items()}


def served_text() -> dict[str, list[dict[str, Any]]]:
    """Return `inputs` of the MLflow model of a text, which converts text into the graph's code points."""
    return {"inputs": [{"name": "text", "dtype": "string", "shape": ["batch"]}]}


def text_example(points: np.ndarray) -> dict[str, list[Any]]:
    """Return the first windows (window, position) of code points as texts."""
    return {"text": ["".join(map(chr, row)) for row in points[:EXAMPLE_ROWS].tolist()]}


def without_rows(exported: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of an export with an input example that is no row of the data, and without samples of texts.

    A sample goes on from the validation text.
    """
    example = {tensor["name"]: _no_row(tensor) for tensor in exported["inputs"]}
    return {**{name: value for name, value in exported.items() if name != "samples"}, "input_example": example}


def _no_row(tensor: Mapping[str, Any]) -> list[Any]:
    if DTYPES[tensor["dtype"]] is np.str_:
        return ["an example"]
    zeros: list[Any] = np.zeros([size if isinstance(size, int) else 1 for size in tensor["shape"]], int).tolist()
    return zeros


def feed_of(example: Mapping[str, list[Any]], inputs: Iterable[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Convert an input example back into arrays for ONNX Runtime.

    Args:
        example: The result of `input_example`.
        inputs: The result of `signature` for the graph's inputs.
    """
    feed = {}
    for tensor_spec in inputs:
        dtype = DTYPES[tensor_spec["dtype"]]
        feed[tensor_spec["name"]] = np.array(example[tensor_spec["name"]], object if dtype is np.str_ else dtype)
    return feed


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value
