"""Request errors of a server. Each protocol formats them its own way; none adds details.

| status | when |
|---|---|
| 400 | what was sent cannot be read, or is not what the model takes |
| 401 | a token is needed, or it is a wrong one |
| 404 | no such model, version or address |
| 408 | the request did not arrive in time |
| 413 | more than the server takes at once |
| 415 | an encoding that the server does not read |
| 421 | the Host header names another server |
| 429 | more requests than this caller may send |
| 431 | the head of the request is too large |
| 503 | busy, ending, no version yet, or the log cannot be written: ask again after `Retry-After` |
| 504 | the caller's deadline passed first |
"""

from __future__ import annotations

from collections.abc import Mapping

BUSY = 503


class RequestError(Exception):
    """A request that is not answered, and why: `str(refusal)` goes to the caller as it is.

    Args:
        status: The HTTP status; gRPC has its own of the same meaning.
        message: What was got, what was expected, the cure; no path of this machine.
        headers: Headers of the HTTP response.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})


def unreadable(message: str) -> RequestError:
    """400: the request is not what is expected."""
    return RequestError(400, message)


def unknown(message: str) -> RequestError:
    """There is no such thing here."""
    return RequestError(404, message)


def too_large(message: str) -> RequestError:
    """More than the server takes at once."""
    return RequestError(413, message)


def busy(message: str, after_s: int = 1) -> RequestError:
    """Not now: ask again after `after_s` seconds."""
    return RequestError(BUSY, message, {"retry-after": str(after_s)})


def late(message: str) -> RequestError:
    """The caller's deadline passed before there was an answer."""
    return RequestError(504, message)
