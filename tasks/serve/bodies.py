"""Bodies of requests and responses: compressed or not, limited in size."""

from __future__ import annotations

import asyncio
import functools
import gzip
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import orjson
from starlette.responses import Response

from models.serving import http_errors
from models.serving.http_errors import RequestError
from tasks.serve.calls import HttpResponse

JSON = "application/json"
P = ParamSpec("P")
T = TypeVar("T")
LEAST_COMPRESSED = 1024
"""Bytes: a smaller body costs more to compress than it saves."""
LARGE_BYTES = 1 << 16
"""A larger body is parsed, logged and answered in a thread: 12.9 MB blocked the event loop for 0.6 s."""
PIECE_BYTES = 1 << 16
"""Bytes of a compressed body that are decompressed in one step."""
MOST_MEMBERS = 1024
"""Maximum number of gzip members in a body: empty members cost time and never reach the size limit."""
_WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_LARGE = ThreadPoolExecutor(1, "loopline-large")
"""One thread: more threads would only share the GIL and hold more rows in memory."""
_OF_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")


def content_of(headers: Mapping[str, str], body: bytes, most_bytes: int) -> bytes:
    """Return a request's body, decompressed.

    Args:
        headers: The request's headers. Content types that a page of another site may send without a CORS preflight
            are refused.
        body: The body as it was sent.
        most_bytes: The size limit, also for the decompressed body.

    Raises:
        RequestError: The body is too large or damaged, or its encoding or content type is not supported.
    """
    kind = kind_of(headers)
    if kind in _OF_FORMS:
        raise RequestError(415, f"got content type {kind}, expected {JSON}")
    encoding = headers.get("content-encoding")
    if encoding is not None and encoding.strip().lower() != "identity":
        body = _decompressed(body, encoding.strip().lower(), most_bytes)
    if len(body) > most_bytes:
        raise http_errors.too_large(f"got {len(body)} bytes, expected {most_bytes} at most: send fewer rows at a time")
    return body


async def off_loop(is_large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function directly, or for a large body in a thread, so that probes and small requests are not blocked."""
    if not is_large:
        return work(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_LARGE, functools.partial(work, *args, **kwargs))


def kind_of(headers: Mapping[str, str]) -> str:
    """Return the content type of a request without its parameters; empty if there is none."""
    header = headers.get("content-type", "")
    return header if header == JSON else header.partition(";")[0].strip().lower()


def answered(headers: Mapping[str, str], body: bytes, extra: Mapping[str, str], kind: str = JSON) -> HttpResponse:
    """Build the response to a request; compress the body if the client accepts this and the body is large enough."""
    response_headers = {**extra, "content-type": kind}
    if len(body) >= LEAST_COMPRESSED:
        response_headers["vary"] = "Accept-Encoding"
        encoding = _accepted(headers.get("accept-encoding", ""))
        if encoding:
            body = gzip.compress(body, 1, mtime=0) if encoding == "gzip" else zlib.compress(body, 1)
            response_headers["content-encoding"] = encoding
    response_headers["content-length"] = str(len(body))
    return HttpResponse(body, response_headers)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Build a short JSON response."""
    return Response(orjson.dumps(value), status, headers, JSON)


def _decompressed(body: bytes, encoding: str, most_bytes: int) -> bytes:
    if encoding not in _WINDOWS:
        raise RequestError(415, f"got content encoding {encoding[:40]!r}, expected gzip, deflate or none")
    content, rest, members = bytearray(), memoryview(body), 1
    stream = zlib.decompressobj(_WINDOWS[encoding])
    while rest and len(content) <= most_bytes:
        if stream.eof:  # a gzip may have several members, one after the other (RFC 1952)
            stream, members = zlib.decompressobj(_WINDOWS[encoding]), members + 1
        if members > MOST_MEMBERS:
            raise http_errors.unreadable(f"the body is more than {MOST_MEMBERS:,} times {encoding}: send it as one")
        piece = rest[:PIECE_BYTES]  # zlib copies the bytes behind a member: limit them
        try:
            content += stream.decompress(piece, most_bytes + 1 - len(content))
        except zlib.error:
            raise http_errors.unreadable(f"the body is no {encoding}, as its Content-Encoding says") from None
        rest = rest[len(piece) - len(stream.unused_data) :]
    if body and len(content) <= most_bytes and not stream.eof:
        raise http_errors.unreadable(f"the body ends within its {encoding}: send it whole")
    return bytes(content)


def _accepted(header: str) -> str | None:
    """Return the first supported encoding that the client accepts; `q=0` excludes an encoding."""
    for part in header.lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() in _WINDOWS and quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000"):
            return name.strip()
    return None
