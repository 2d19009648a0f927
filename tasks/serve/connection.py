"""Connection limits: timeouts for slow heads and bodies, endless heads, too many connections at once.

If there are too many connections, the server takes the client address with the most waiting connections and closes
those that have waited longest. If all connections are busy, a new one may only send probes. uvicorn itself closes only
connections that are idle between requests. Its plain-text errors become JSON here.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import time
from collections import Counter
from typing import Any, cast

import httptools
import orjson

from tasks.serve.fast_path import FastPath
from tasks.serve.middleware import OPEN

HEAD_S = 20.0
"""Seconds within which the head of a request and the first bytes of its body must arrive."""
BODY_BYTES_PER_S = 1 << 16
"""Minimum rate of a body: each time this many bytes have arrived, the body gets one more second."""
HEAD_BYTES = 1 << 16
MOST_CONNECTIONS = 2000
PROBE_CONNECTIONS = 100
"""Connections beyond MOST_CONNECTIONS; while all others are busy, these may only send probes, such as `/health`."""
PROBES = frozenset({*OPEN, "/metrics"})
CLOSED_AT_ONCE = 20
"""Connections closed in one step to make room: a search for each new connection would cost too much."""
DISCARDED_BYTES = 1 << 26
"""Bytes of a refused body that are still read, so that a client that sends before it reads gets the response."""
LOOK_S = 1.0
LINGER_S = 0.5
"""Seconds that an ending server keeps an idle connection open, to answer a request that is on its way."""
REASONS = {
    400: "Bad Request",
    408: "Request Timeout",
    414: "URI Too Long",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Connection(FastPath):
    """One client connection of one worker."""

    _watched: asyncio.AbstractEventLoop | None = None
    """The event loop in which one timer checks all connections; a connection has no timer of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waits_since: float | None = None
        self._heard_at = 0.0
        self._is_for_probes = False
        self._in_head = False
        self._got = 0
        self._data = self._again = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection and make room for it, or refuse it if there are too many."""
        super().connection_made(transport)
        self._waits_since = self._heard_at = time.monotonic()
        self._in_head = True
        if len(self.connections) > MOST_CONNECTIONS:
            self._is_for_probes = not self._make_room()
        if len(self.connections) > MOST_CONNECTIONS + PROBE_CONNECTIONS:
            self._refuse_as_too_many()
        elif Connection._watched is not self.loop:
            Connection._watched = self.loop
            self.loop.call_later(LOOK_S, self._look_at_all)

    def data_received(self, data: bytes) -> None:
        """Parse received data and enforce the size limits."""
        if self.transport.is_closing():
            return
        self._heard_at = time.monotonic()
        self._got += len(data)
        self._again = data
        while self._again:
            self._data, self._again = self._again, b""
            super().data_received(self._data)
        if self._in_head and self._got > HEAD_BYTES:
            self._refuse(431, f"the head of the request is larger than {HEAD_BYTES:,} bytes")
        elif self._waits_since is not None and self._got > DISCARDED_BYTES and self.cycle and not self._is_answering():
            self.transport.close()

    def on_message_begin(self) -> None:
        """Start the timeout of a new request."""
        super().on_message_begin()
        self._waits_since = time.monotonic()
        self._in_head, self._got = True, 0

    def on_headers_complete(self) -> None:
        """Check a complete request head."""
        if len(self.url) >= HEAD_BYTES:  # more than the URL parser reads
            self._refuse(414, f"the address is longer than {HEAD_BYTES - 1:,} bytes")
            return
        if sum(name == b"host" for name, _ in self.headers) > 1:  # RFC 9112, section 3.2
            self._refuse(400, "the request names more than one Host")
            return
        if self._is_for_probes and self.url.partition(b"?")[0].decode("latin-1") not in PROBES:
            self._refuse_as_too_many()
            return
        self._in_head = False
        if not self._asks_for_another_protocol():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Stop the timeout: the whole request is here."""
        self._waits_since = None
        if not self._asks_for_another_protocol():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP with a JSON error; uvicorn's own error is plain text."""
        self._refuse(400, "this is no HTTP request")

    def shutdown(self) -> None:
        """End the connection with the server: answer a last request that is open or arrives within LINGER_S."""
        self.is_ending = True
        if self._is_answering():
            super().shutdown()
        else:
            self.loop.call_later(LINGER_S, self._rest)

    def _rest(self) -> None:
        if not self._is_answering():
            self.transport.close()

    def _make_room(self) -> bool:
        """Close the longest-waiting connections of the client address that has the most waiting connections.

        Connections between requests or in a head are closed first, then those that wait for a body. Returns False if
        all connections are busy.
        """
        waiting = [cast("Connection", one) for one in self.connections if cast("Connection", one)._waits_for_caller()]
        waiting.remove(self)
        if not waiting:
            return False
        most, _ = Counter(one._address for one in waiting).most_common(1)[0]
        own = [one for one in waiting if one._address == most]
        closed = heapq.nsmallest(CLOSED_AT_ONCE, own, key=Connection._place_in_line)
        for one in closed:
            one.transport.close()
            self.connections.discard(one)  # otherwise it counts until the event loop's next turn
        self._middleware.closed_to_make_room(len(closed))
        return True

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _waits_for_caller(self) -> bool:
        return not self.transport.is_closing() and (self._waits_since is not None or not self._is_answering())

    def _place_in_line(self) -> tuple[bool, float]:
        """Return the sort key for closing: bodies come last; a slow head is as old as its request."""
        if self._waits_since is None:
            return False, self._heard_at
        return not self._in_head, self._waits_since

    def _look_at_all(self) -> None:
        """Close connections that are too slow; repeat while there are connections."""
        now = time.monotonic()
        for connection in list(self.connections):
            cast("Connection", connection)._look(now)
        if self.connections:
            self.loop.call_later(LOOK_S, self._look_at_all)
        else:
            Connection._watched = None

    def _look(self, now: float) -> None:
        if self._waits_since is None:
            if self._has_been_idle(now):
                self.transport.close()
            return
        allowed_s = HEAD_S if self._in_head else HEAD_S + self._got / BODY_BYTES_PER_S
        if now - self._waits_since <= allowed_s:
            return
        began: Any = self.scope  # None if the client never sent anything
        if began is None:
            self.transport.close()
        else:
            self._refuse(408, f"the request did not arrive within {allowed_s:.0f} s")

    def _has_been_idle(self, now: float) -> bool:
        """Return whether it has been idle too long after a fast-path response; else uvicorn's timer runs."""
        if self._is_answering() or self.timeout_keep_alive_task is not None:
            return False
        return self.answered_at is not None and now - self.answered_at > self.timeout_keep_alive

    def _may_write(self) -> bool:
        """Return whether a response written now would answer the client's current request."""
        cycle: Any = self.cycle  # None before the first request
        if cycle is None:
            return True
        return bool(cycle.response_complete if self._in_head else not cycle.response_started)

    def _asks_for_another_protocol(self) -> bool:
        """Return whether the request asks for a protocol upgrade.

        Java's client and `curl --http2` ask so with every request, even one with a body.
        """
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _unsupported_upgrade_warning(self) -> None:
        """Parse such a request again without the upgrade: the parser takes its body for the other protocol."""
        met = sys.exception()
        if not isinstance(met, httptools.HttpParserUpgrade) or not self._asks_for_another_protocol():
            return
        rest = self._data[met.args[0] :]
        lines = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self._again = b"\r\n".join([*lines, b"", rest])

    def _refuse_as_too_many(self) -> None:
        self._refuse(503, "too many connections: ask again", b"retry-after: 1\r\n")

    def _refuse(self, status: int, response: str, headers: bytes = b"") -> None:
        """Send the error, unless a response is under way, and close the connection."""
        if self.transport.is_closing():
            return
        self._middleware.refused(status, response)
        if self._may_write():
            body = orjson.dumps({"error": response})
            head = (
                b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\nconnection: close\r\n%scontent-length: %d\r\n\r\n"
            )
            self.transport.write(head % (status, REASONS[status].encode(), headers, len(body)) + body)
        self.transport.close()
