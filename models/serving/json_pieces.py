"""Large JSON read, written and freed a piece at a time, so that other threads run between the pieces.

`orjson.loads` holds the GIL to its end: 124 ms for 15.7 MB of records, in which a health check is not answered. Writing
11 MB holds it for 40 ms, freeing 85,000 objects for 30 ms.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson

from models.errors import DataError
from models.inference.table import PIECE_ITEMS

PIECE_BYTES = 1 << 18
"""About the bytes that are parsed at once: 2 ms."""
_LIST = re.compile(rb"\[\s*((?:\[\s*){1,4}|\{)")
"""The first list of lists or of objects. Deeper lists are rare, and are parsed at once."""
_BETWEEN_OBJECTS = re.compile(rb"\}\s*(,)\s*\{")
_MARK = secrets.token_hex(16)
"""Stands in the list for the items that are parsed already."""


def parsed_in_pieces(body: bytes, parse: Callable[[bytes], Any]) -> Any:
    """Return `parse(body)`, calling `parse` for about `PIECE_BYTES` at a time if the body holds a long list.

    The list is cut where one item seems to end and the next to begin. A wrong cut, within a text or within an item,
    leaves a piece that is not JSON; then the whole body is parsed. So the result never depends on the cuts.

    Args:
        body: JSON of any size.
        parse: Parses one JSON document; raises `DataError` or `ValueError` if it is not one.

    Raises:
        DataError, ValueError: What `parse` raises for the whole body.
    """
    opening = _LIST.search(body) if len(body) > 2 * PIECE_BYTES else None
    if opening is not None:
        try:
            return _joined(body, opening, parse)
        except (DataError, ValueError, LookupError):
            pass  # of the whole body `parse` says what is wrong with it
    return parse(body)


def written(document: Mapping[str, Any], num_rows: int) -> bytes:
    """Return `orjson.dumps(document)`, with numpy's arrays as lists; of many rows a piece at a time.

    Args:
        document: Lists or arrays by name, or objects of such.
        num_rows: Length of the longest lists.
    """
    if num_rows <= PIECE_ITEMS:
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return _written_in_pieces(document)


def _written_in_pieces(document: Mapping[str, Any]) -> bytes:
    return b"{%b}" % b",".join(orjson.dumps(name) + b":" + _written(value) for name, value in document.items())


def free_in_pieces(items: list[Any]) -> None:
    """Empty a list that nobody needs any more."""
    while items:
        del items[-PIECE_ITEMS:]


def _written(value: Any) -> bytes:
    if isinstance(value, dict):
        return _written_in_pieces(value)
    if not isinstance(value, list | tuple | np.ndarray) or len(value) <= PIECE_ITEMS:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    starts = range(0, len(value), PIECE_ITEMS)
    pieces = (orjson.dumps(value[start : start + PIECE_ITEMS], option=orjson.OPT_SERIALIZE_NUMPY) for start in starts)
    return b"[%b]" % b",".join(piece[1:-1] for piece in pieces)


def _joined(body: bytes, opening: re.Match[bytes], parse: Callable[[bytes], Any]) -> Any:
    first, between, items = opening.start() + 1, _between(opening[1]), list[Any]()
    begin = first
    while len(body) - begin > 2 * PIECE_BYTES and (cut := between.search(body, begin + PIECE_BYTES)):
        (piece,) = parse(b"[[" + body[begin : cut.start(1)] + b"]]")  # as deep as in an object: depth has a limit
        items += piece
        begin = cut.end(1)
    # The quotes of the mark are quotes of the document only where the list is no part of a text.
    document = parse(b'%b"%b",%b' % (body[:first], _MARK.encode(), body[begin:]))
    values = [document] if isinstance(document, list) else list(document.values())
    marked = next((value for value in values if isinstance(value, list) and value[:1] == [_MARK]), None)
    if marked is None:
        raise LookupError("the list is not at the top of the document")
    marked[:1] = items
    return document


def _between(brackets: bytes) -> re.Pattern[bytes]:
    depth = brackets.count(b"[")
    if not depth:
        return _BETWEEN_OBJECTS
    return re.compile(rb"\s*".join([rb"\]"] * depth + [b"(,)"] + [rb"\["] * depth))
