"""Tensors of the Open Inference Protocol: conversion of their data from and to JSON and bytes.

An element of BYTES is text in UTF-8, in Python a str in an array of objects.
Source: Open Inference Protocol, "Tensor Data Types"; Triton's "Binary Tensor Data Extension".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.errors import DataError
from models.inference.row_values import NUMBERS, shown

BYTES = "BYTES"
DTYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
_ONNX = {
    "double": "FP64", "float": "FP32", "float16": "FP16", "int64": "INT64", "int32": "INT32", "int8": "INT8",
    "uint8": "UINT8", "bool": "BOOL", "string": BYTES,
}  # fmt: skip
_LENGTH = struct.Struct("<I")
_INTEGERS = frozenset((int,))
_WHOLE = frozenset((int, bool))
_EXPECTED = {
    **{name: NUMBERS if name.startswith("FP") else _WHOLE for name in DTYPES},
    "BOOL": frozenset((bool,)),
    BYTES: frozenset((str, type(None))),
}
"""Python types of the JSON elements of each datatype; null and booleans have the same meaning as in `/invocations`."""


@dataclass(frozen=True)
class TensorSpec:
    """An input or output: `dtype` is a datatype of the Open Inference Protocol; -1 in `shape` is any size."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def port_of(value: Any) -> TensorSpec:
    """Return the specification of an input or output of an ONNX Runtime session."""
    shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
    return TensorSpec(value.name, _ONNX[value.type.removeprefix("tensor(").removesuffix(")")], shape)


def checked_shape(shape: Any, dtype: Any, name: str) -> tuple[int, ...]:
    """Return a shape as a tuple, after a check of the shape and the datatype.

    Raises:
        DataError: The shape is no list of sizes, or the datatype is unknown.
    """
    if dtype != BYTES and (not isinstance(dtype, str) or dtype not in DTYPES):
        raise DataError(f"input {name!r}: got datatype {shown(dtype)}, expected {', '.join([*DTYPES, BYTES])}")
    if not isinstance(shape, Sequence) or isinstance(shape, str) or not 1 <= len(shape) <= 8:
        raise DataError(f"input {name!r}: `shape` is {shown(shape)}, expected a list of sizes, the rows first")
    if not _INTEGERS.issuperset(map(type, shape)) or min(shape) < 1 or max(shape) >= 1 << 63:
        raise DataError(f"input {name!r}: got `shape` {shown(shape)}, expected whole numbers above 0")
    return tuple(shape)


def tensor_of_json(data: Any, dtype: str, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return an array from JSON, flat or nested by its shape; null is a missing number or text, a boolean 0 or 1.

    Raises:
        DataError: The type or the number of the elements differs from datatype and shape.
    """
    if not isinstance(data, list):
        raise DataError(f"input {name!r}: `data` is no list, expected {math.prod(shape)} elements")
    flat = _flat(data, shape, name)
    if len(flat) != math.prod(shape):
        raise _wrong_size(name, shape, dtype, f"{len(flat)} elements")
    expected = _EXPECTED[dtype]
    if expected is _WHOLE and float in map(type, flat):
        flat = [int(value) if type(value) is float and value.is_integer() else value for value in flat]
    if not expected.issuperset(map(type, flat)):
        wrong = next(value for value in flat if type(value) not in expected)
        raise DataError(f"input {name!r}: got {shown(wrong)} among the data, expected {dtype}")
    try:
        return np.array(flat, object if dtype == BYTES else DTYPES[dtype]).reshape(shape)
    except OverflowError:
        raise DataError(
            f"input {name!r}: got a number that {dtype} does not hold: correct it, or send a wider datatype"
        ) from None


def tensor_of_bytes(content: bytes | memoryview, dtype: str, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return an array from its bytes: little-endian, row by row, without gaps.

    Raises:
        DataError: The number of bytes differs from datatype and shape, or a text is no UTF-8.
    """
    if dtype == BYTES:
        return _texts(content, math.prod(shape), name).reshape(shape)
    kind = np.dtype(DTYPES[dtype]).newbyteorder("<")
    if len(content) != math.prod(shape) * kind.itemsize:
        raise _wrong_size(name, shape, dtype, f"{len(content)} bytes")
    # A copy, because data within a request body is not aligned; any byte except 0 is true.
    flat = np.frombuffer(content, np.uint8 if dtype == "BOOL" else kind)
    values: np.ndarray = flat.astype(DTYPES[dtype], copy=True).reshape(shape)
    return values


def json_of_tensor(values: np.ndarray) -> Any:
    """Return the flat values of an array, as a list or as an array that orjson writes."""
    return values.ravel().tolist() if values.dtype == object else np.ascontiguousarray(values).ravel()


def bytes_of_tensor(values: np.ndarray) -> bytes:
    """Return the bytes of an array; each text has its length before it."""
    if values.dtype != object:
        return np.ascontiguousarray(values).tobytes()
    encoded = [value.encode() for value in values.ravel()]
    return b"".join(part for content in encoded for part in (_LENGTH.pack(len(content)), content))


def text_of(content: bytes, name: str) -> str:
    """Return an element of BYTES as text.

    Raises:
        DataError: The bytes are no UTF-8.
    """
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError:
        raise DataError(f"input {name!r}: got bytes that are no UTF-8, expected text") from None


def _flat(data: list[Any], shape: tuple[int, ...], name: str) -> list[Any]:
    if list not in map(type, data):
        return data
    try:
        nested = np.array(data, object)
    except ValueError:
        nested = np.array(None)
    if nested.shape != shape:
        raise DataError(
            f"input {name!r}: the lists of `data` are not of shape {list(shape)}: nest them so, or send one flat list"
        )
    flat: list[Any] = nested.ravel().tolist()
    return flat


def _texts(content: bytes | memoryview, count: int, name: str) -> np.ndarray:
    texts: list[str] = []
    offset, end = 0, len(content)
    while offset + _LENGTH.size <= end and len(texts) < count:
        (length,) = _LENGTH.unpack_from(content, offset)
        offset += _LENGTH.size
        if offset + length > end:
            break
        texts.append(text_of(bytes(content[offset : offset + length]), name))
        offset += length
    if len(texts) != count or offset != end:
        raise DataError(
            f"input {name!r}: got {end} bytes, expected {count} texts, each with its length before it, as four bytes"
        )
    return np.array(texts, object)


def _wrong_size(name: str, shape: tuple[int, ...], dtype: str, got: str) -> DataError:
    return DataError(f"input {name!r}: got {got}, expected {math.prod(shape)} x {dtype}: shape {list(shape)}")
