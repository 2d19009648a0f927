"""Inputs and outputs of a model in the terms of the Open Inference Protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ONNX_DTYPES = {
    "double": "FP64",
    "float": "FP32",
    "float16": "FP16",
    "int64": "INT64",
    "int32": "INT32",
    "int8": "INT8",
    "uint8": "UINT8",
    "bool": "BOOL",
    "string": "BYTES",
}
"""ONNX's names of types, and those of the Open Inference Protocol."""


@dataclass(frozen=True)
class TensorSpec:
    """An input or output: `dtype` is a datatype of the Open Inference Protocol; -1 in `shape` is any size."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def port_of(value: Any) -> TensorSpec:
    """Return the specification of an input or output of an ONNX Runtime session."""
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    return TensorSpec(
        value.name, ONNX_DTYPES[kind], tuple(size if isinstance(size, int) else -1 for size in value.shape)
    )
