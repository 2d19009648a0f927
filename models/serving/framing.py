"""Frames of the write-ahead log: one write for each record; an incomplete last frame is ignored.

A frame is its payload's length (4 bytes, little-endian), the CRC-32 of the payload (4 bytes), and the payload, which is
not empty: a block of zeros, as a power failure leaves it, holds no frame.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

_HEAD = struct.Struct("<II")


def framed(payload: bytes) -> bytes:
    """Return a record as a frame."""
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def unframed(content: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the complete records of a segment from `start` on, each with the offset after it; stop at a broken one."""
    while start + _HEAD.size <= len(content):
        length, crc = _HEAD.unpack_from(content, start)
        payload = content[start + _HEAD.size : start + _HEAD.size + length]
        if not length or len(payload) < length or zlib.crc32(payload) != crc:
            return
        start += _HEAD.size + length
        yield start, payload


def is_torn(rest: bytes) -> bool:
    """Return True if the rest after the last complete record is an unfinished record; False if the file was damaged."""
    if len(rest) < _HEAD.size or not any(rest):
        return True
    length, _ = _HEAD.unpack_from(rest)
    return bool(length) and _HEAD.size + length > len(rest)
