"""Request errors of a server. Each protocol formats them in its own way; none adds anything to the message.

| status | when |
|---|---|
| 400 | the request cannot be read, or does not fit the model |
| 401 | a token is needed, or it is wrong |
| 404 | no such model, version or address |
| 408 | the request did not arrive in time |
| 413 | the request is larger than the server accepts |
| 415 | an encoding that the server does not read |
| 421 | the Host header names another server |
| 429 | the caller is over its rate limit |
| 431 | the header of the request is too large |
| 503 | overloaded, shutting down, no version yet, or the log cannot be written: retry after `Retry-After` |
| 504 | the caller's deadline passed first |
"""

from __future__ import annotations

from collections.abc import Mapping

BUSY = 503


class RequestError(Exception):
    """A rejected request and the reason: `str(refusal)` is sent to the caller unchanged.

    Args:
        status: The HTTP status; gRPC has its own of the same meaning.
        message: The value received, the value expected, the cure; no path of this machine.
        headers: Headers of the HTTP response.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})


def unreadable(message: str) -> RequestError:
    """Return the error for a request that does not have the expected form."""
    return RequestError(400, message)


def unknown(message: str) -> RequestError:
    """Return the error for an unknown model, version or address."""
    return RequestError(404, message)


def too_large(message: str) -> RequestError:
    """Return the error for a request larger than the server accepts."""
    return RequestError(413, message)


def busy(message: str, after_s: int = 1) -> RequestError:
    """Return the error for an overloaded server: the caller may retry after `after_s` seconds."""
    return RequestError(BUSY, message, {"retry-after": str(after_s)})


def late(message: str) -> RequestError:
    """Return the error for a deadline that passed before there was an answer."""
    return RequestError(504, message)
