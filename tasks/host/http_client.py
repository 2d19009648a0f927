"""Requests that carry a secret: it goes to the server that it was given for, and follows no redirect to another one."""

from __future__ import annotations

import functools
import urllib.request
from email.message import Message
from http.client import HTTPResponse
from typing import IO
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def is_same_server(address: str, other_address: str) -> bool:
    """Return whether two addresses have the same scheme, host and port, which is what a secret is given for."""
    return _origin(address) == _origin(other_address)


def opened(request: urllib.request.Request, timeout_s: float) -> HTTPResponse:
    """Send a request and return its answer, a context manager; a redirect to another server takes no Authorization.

    Raises:
        OSError: As `urllib.request.urlopen`.
    """
    answer: HTTPResponse = _opener().open(request, timeout=timeout_s)
    return answer


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request to follow; without the secret if the redirect leads to another server."""
        following = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if following is not None and not is_same_server(req.full_url, newurl):
            following.remove_header("Authorization")
        return following


@functools.cache
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Redirects)


def _origin(address: str) -> tuple[str, str, int | None]:
    parts = urlsplit(address)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme)
