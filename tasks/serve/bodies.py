"""Bodies of requests and responses: compressed or not, never larger than the server takes."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from models.serving import refusals
from models.serving.refusals import Refusal

JSON = "application/json"
LEAST_COMPRESSED = 1024
"""Bytes: a smaller body costs more to compress than it saves."""
_WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_OF_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")


async def body_of(request: Request, most_bytes: int) -> bytes:
    """A request's body, decompressed.

    Args:
        request: Of any content type but those that a page of another site may send without being asked.
        most_bytes: More are refused, also when they come compressed.

    Raises:
        Refusal: It is too large, or in an encoding or type that is not read here.
    """
    kind = kind_of(request)
    if kind in _OF_FORMS:
        raise Refusal(415, f"got content type {kind}, expected {JSON}")
    body = await request.body()
    encoding = request.headers.get("content-encoding")
    if encoding is not None and encoding.strip().lower() != "identity":
        body = _decompressed(body, encoding.strip().lower(), most_bytes)
    if len(body) > most_bytes:
        raise refusals.too_large(f"got {len(body)} bytes, expected {most_bytes} at most: send fewer rows at a time")
    return body


def kind_of(request: Request) -> str:
    """The content type of a request without its parameters; empty for none."""
    given: str = request.headers.get("content-type", "")
    return given if given == JSON else given.partition(";")[0].strip().lower()


class Made(Response):
    """A response of bytes; Starlette's own weighs what it may be made of at three times the cost."""

    def __init__(self, body: bytes, headers: Mapping[str, str]) -> None:
        self.status_code, self.body, self.background = 200, body, None
        self.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def answered(request: Request, body: bytes, headers: Mapping[str, str], kind: str = JSON) -> Response:
    """A response with a body, compressed if the caller takes that and it is worth it."""
    found = {**headers, "content-type": kind}
    if len(body) >= LEAST_COMPRESSED:
        found["vary"] = "Accept-Encoding"
        encoding = _accepted(request.headers.get("accept-encoding", ""))
        if encoding:
            body = gzip.compress(body, 1, mtime=0) if encoding == "gzip" else zlib.compress(body, 1)
            found["content-encoding"] = encoding
    found["content-length"] = str(len(body))
    return Made(body, found)


def told(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A short response of JSON."""
    return Response(orjson.dumps(value), status, headers, JSON)


def _decompressed(body: bytes, encoding: str, most_bytes: int) -> bytes:
    if encoding not in _WINDOWS:
        raise Refusal(415, f"got content encoding {encoding[:40]!r}, expected gzip, deflate or none")
    stream = zlib.decompressobj(_WINDOWS[encoding])
    try:
        found = stream.decompress(body, most_bytes + 1)
    except zlib.error:
        raise refusals.unreadable(f"the body is no {encoding}, as its Content-Encoding says") from None
    if len(found) <= most_bytes and not stream.eof:
        raise refusals.unreadable(f"the body ends within its {encoding}: send it whole")
    return found


def _accepted(header: str) -> str | None:
    """The first of the caller's encodings that is spoken here; `q=0` says no."""
    for part in header.lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() in _WINDOWS and quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000"):
            return name.strip()
    return None
