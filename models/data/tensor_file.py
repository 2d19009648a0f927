"""Safetensors files written and read in ranges of rows, so that a table of any length costs the memory of one range.

The safetensors library itself writes a whole file at once, from whole tensors. Source of the format:
huggingface/safetensors, README (eight bytes of length, a JSON header, then the tensors one after the other).
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from models.errors import DataError

Tensors = Mapping[str, np.ndarray]

_CODES = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64, "U8": np.uint8}
_NAMES = {np.dtype(kind): code for code, kind in _CODES.items()}
_LONGEST_HEADER_BYTES = 100 << 20
_ALIGNMENT = 8
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class TensorLocation:
    """The location of one tensor in a file: `offset` in bytes from the start of the file, C order, little endian."""

    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, that is of the entries under one index of the first dimension."""
        return int(self.dtype.itemsize * np.prod(self.shape[1:], dtype=np.int64))


class RowWriter:
    """Writes a file of known shapes; rows may come in any order. Use it as a context manager.

    Args:
        path: The file. It must not be read before the block has ended without an error.
        layout: Type and shape of each tensor.
    """

    def __init__(self, path: Path, layout: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> None:
        header: dict[str, dict[str, Any]] = {}
        starts, end = {}, 0
        for name, (dtype, shape) in layout.items():
            starts[name], end = end, end + int(np.dtype(dtype).itemsize * np.prod(shape, dtype=np.int64))
            header[name] = {"dtype": _NAMES[np.dtype(dtype)], "shape": shape, "data_offsets": [starts[name], end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        first = _LENGTH.size + len(text)
        self._places = {
            name: TensorLocation(np.dtype(dtype), shape, first + starts[name])
            for name, (dtype, shape) in layout.items()
        }
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        _write(self._file, memoryview(_LENGTH.pack(len(text)) + text), 0)
        os.ftruncate(self._file, first + end)

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                os.fsync(self._file)
        finally:
            os.close(self._file)

    def put(self, start: int, rows: Tensors) -> None:
        """Write rows from row `start` on into every tensor in `rows`, cast to the types of the file."""
        for name, values in rows.items():
            place = self._places[name]
            if values.shape[1:] != place.shape[1:] or start + len(values) > place.shape[0]:
                raise ValueError(f"{name}: got {values.shape} at row {start}, expected rows of {place.shape}")
            _write(
                self._file,
                _bytes(np.ascontiguousarray(values, dtype=place.dtype)),
                place.offset + start * place.row_bytes,
            )


def read_header(file: BinaryIO) -> dict[str, dict[str, Any]]:
    """Return the header of an open safetensors file: `dtype`, `shape` and `data_offsets` (start, end) by tensor name.

    The offsets are in bytes from the start of the file.

    Raises:
        ValueError, struct.error: The file is no safetensors file.
    """
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    if length > _LONGEST_HEADER_BYTES:
        raise ValueError("header too long")
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    first = _LENGTH.size + length
    return {
        name: {**tensor, "data_offsets": [first + offset for offset in tensor["data_offsets"]]}
        for name, tensor in header.items()
    }


def places(path: Path) -> dict[str, TensorLocation]:
    """Return the location of each tensor of a file.

    Raises:
        DataError: The file is missing, cut short, or holds a type that examples never have.
    """
    try:
        with path.open("rb") as file:
            header = read_header(file)
        locations = {
            name: TensorLocation(np.dtype(_CODES[tensor["dtype"]]), tuple(tensor["shape"]), tensor["data_offsets"][0])
            for name, tensor in header.items()
        }
        end = max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
        if path.stat().st_size < end:
            raise ValueError(f"{path.stat().st_size} bytes where {end} were written")
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise DataError(f"{path}: cannot be read as tensors ({error}): remove it and run again") from error
    return locations


def read_rows(file: int, place: TensorLocation, start: int, stop: int) -> np.ndarray:
    """Return rows `start` to `stop` of one tensor of an open file as a new array.

    Raises:
        OSError: The disk failed, or the file is shorter than its header states.
    """
    rows = np.empty((stop - start, *place.shape[1:]), dtype=place.dtype)
    view = _bytes(rows)
    offset = place.offset + start * place.row_bytes
    while view:
        count = os.preadv(file, [view], offset)
        if not count:
            raise OSError(f"ends at byte {offset}, expected {len(view)} more")
        view, offset = view[count:], offset + count
    return rows


def _bytes(values: np.ndarray) -> memoryview:
    return values.reshape(-1).view(np.uint8).data if values.size else memoryview(b"")


def _write(file: int, view: memoryview, offset: int) -> None:
    while view:
        count = os.pwrite(file, view, offset)
        view, offset = view[count:], offset + count
