"""Connection limits: timeouts for slow heads, bodies and readers, endless heads, too many connections at once.

If there are too many connections, the server takes the client address with the most waiting connections and closes
those that have waited longest. If all connections are busy, a new one may only send probes. uvicorn has no option for
this (`docs/decisions/0021`): it closes only connections that are idle between requests, and refuses the newest.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import re
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tasks.host.logs import Repeated
from tasks.serve.request_context import RequestContext
from tasks.serve.state import WorkerState

HEAD_S = 20.0
"""Seconds within which the head of a request and the first bytes of its body must arrive."""
BODY_BYTES_PER_S = 1 << 16
"""Minimum rate of a body: each time this many bytes have arrived, the body gets one more second."""
HEAD_BYTES = 1 << 16
PIPELINED_BYTES = 1 << 20
"""Bytes that may arrive while a request is answered; uvicorn stops reading behind the head of the next request."""
MOST_CONNECTIONS = 2000
PROBE_CONNECTIONS = 100
"""Connections beyond MOST_CONNECTIONS; while all others are busy, these may only send probes, such as `/health`."""
CLOSED_AT_ONCE = 20
"""Connections closed in one step to make room: a search for each new connection would cost too much."""
UNREAD_S = 60.0
"""Seconds within which a client must take some of what waits to be written. Of the kernel's buffer, usually 4 MiB,
a third must be free before that is seen: whoever takes 23 KiB a second is never dropped."""
LOOK_S = 1.0
LINGER_S = 0.5
"""Seconds that a connection which uvicorn closes while it is idle stays open for a request that is on its way."""
_HEAD_END = b"\r\n\r\n"
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)

_log = logging.getLogger("loopline.serve")


class Connection(asyncio.Protocol):
    """One client connection: stands between its transport and uvicorn's protocol, and is the transport of the latter.

    The application finds it in `scope["state"]["connection"]`, and tells it how far each request is.

    Args:
        app_state: The state of the application's lifespan, with the worker's `ConnectionLimits` as `connections`.
        made: What uvicorn passes to a protocol.

    `is_working`: a whole request is answered now; else the client is waited for, since `waits_since` by
    `time.monotonic`. `num_bytes`: received since the last answer, or since the request was whole.
    `is_discarding`: the rest of a refused body is read. `is_last`: the next response is the last one.
    """

    get_extra_info: Callable[..., Any]
    is_closing: Callable[[], bool]
    pause_reading: Callable[[], None]
    resume_reading: Callable[[], None]

    def __init__(self, app_state: dict[str, Any], **arguments: Any) -> None:
        self._limits: ConnectionLimits = app_state["connections"]
        self._made = {**arguments, "app_state": {**app_state, "connection": self}}
        self._http: asyncio.Protocol = HttpToolsProtocol(**self._made)
        self._is_new, self._is_parsing = True, False
        self._head = b""
        self._unsent: list[bytes] = []
        self.is_in_head = True
        self.is_working = self.is_discarding = self.is_for_probes = self.is_last = False
        self.waits_since, self.num_bytes = time.monotonic(), 0
        self._num_unread, self._unread_since = 0, 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a connection and make room for it, or refuse it if there are too many."""
        self._transport = whole = cast("asyncio.Transport", transport)
        self.get_extra_info, self.is_closing = whole.get_extra_info, whole.is_closing
        self.pause_reading, self.resume_reading = whole.pause_reading, whole.resume_reading
        peer = whole.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._http.connection_made(cast("asyncio.Transport", self))
        self._limits.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._limits.connections.discard(self)
        self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count received data and pass it to uvicorn."""
        if self.is_closing():
            return
        if not self.num_bytes:
            self.waits_since = time.monotonic()
        self.num_bytes += len(data)
        if self.is_in_head:
            self._look_at_head(data)
        elif self.is_working and self.num_bytes > PIPELINED_BYTES:
            self._transport.close()
        self._is_parsing = True
        self._http.data_received(data)
        self._is_parsing = False

    def eof_received(self) -> bool | None:
        """Close the connection when the client has closed its end."""
        return self._http.eof_received()

    def pause_writing(self) -> None:
        """Hold back responses while the client does not read them."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Go on with responses."""
        self._http.resume_writing()

    def write(self, data: bytes) -> None:
        """Send what uvicorn writes, the head and the body of a response together.

        What it writes while it parses is its plain-text error, which becomes JSON.
        """
        if not self._is_parsing:
            self._unsent.append(data)
            if not self.is_working:
                self._send()
        elif len(self._head) > HEAD_BYTES and b"\n" not in self._head[:HEAD_BYTES]:
            self.refuse(414, f"the address is longer than {HEAD_BYTES - 1:,} bytes")
        else:
            self.refuse(400, "this is no HTTP request")

    def close(self) -> None:
        """Close the connection for uvicorn; an idle one lingers, and the next response is its last."""
        if self.is_working or self.is_discarding or self._is_parsing or self.is_closing():
            self._send()
            self._transport.close()
        else:
            self.is_last = True
            asyncio.get_running_loop().call_later(LINGER_S, self._end_if_idle)

    def cut(self) -> None:
        """Close the connection at once; `close` would keep it, and its memory, until the client has read all."""
        self._transport.abort()

    def refuse(self, status: int, message: str, headers: bytes = b"") -> None:
        """Send an error, unless a response is under way, and close the connection."""
        if self.is_closing():
            return
        self._limits.refused(status, message)
        if not (self.is_discarding or self.is_working):
            body = orjson.dumps({"error": message})
            head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\nconnection: close\r\n%scontent-length: %d"
            filled = head % (status, HTTPStatus(status).phrase.encode(), headers, len(body))
            self._transport.write(filled + _HEAD_END + body)
        self._transport.close()

    def whole(self) -> None:
        """The request has arrived: the client is not waited for until it is answered."""
        self.is_in_head, self.is_working, self.num_bytes = False, True, 0

    def answered(self) -> None:
        """The response is written: the client is waited for."""
        self._send()
        self.is_in_head, self.is_working, self.is_discarding, self._head = True, False, False, b""
        self.waits_since, self.num_bytes = time.monotonic(), 0

    def check(self, now: float) -> None:
        """Close the connection if its client is too slow; between requests uvicorn's own timer runs."""
        if self._is_unread(now):
            self.cut()
        allowed_s = HEAD_S if self.is_in_head else HEAD_S + self.num_bytes / BODY_BYTES_PER_S
        if self.is_working or now - self.waits_since <= allowed_s:
            return
        if self.num_bytes:
            self.refuse(408, f"the request did not arrive within {allowed_s:.0f} s")
        elif self._is_new:
            self._transport.close()

    def _is_unread(self, now: float) -> bool:
        """Return whether the client has taken nothing for UNREAD_S of what waits to be written."""
        num_bytes = self._transport.get_write_buffer_size()
        if not num_bytes or num_bytes != self._num_unread:
            self._num_unread, self._unread_since = num_bytes, now
        return now - self._unread_since > UNREAD_S

    def _send(self) -> None:
        if self._unsent and not self.is_closing():
            self._transport.write(b"".join(self._unsent))
        self._unsent = []

    def _look_at_head(self, data: bytes) -> None:
        """See whether the head of a request ends; use the parser that reads it."""
        self._head += data
        is_whole = self._head.find(_HEAD_END, 0, HEAD_BYTES) >= 0
        if self._is_new and _UPGRADE.search(data):
            self._use_h11()
        self._is_new = False
        if is_whole:
            self.is_in_head, self._head = False, b""
        elif len(self._head) > HEAD_BYTES:  # unless the application has begun with it meanwhile
            asyncio.get_running_loop().call_soon(self._refuse_long_head)

    def _refuse_long_head(self) -> None:
        if self.is_in_head:
            self.refuse(431, f"the head of the request is larger than {HEAD_BYTES:,} bytes")

    def _use_h11(self) -> None:
        """Use uvicorn's other parser for a client that asks for another protocol with each request.

        Java's client and `curl --http2` do so, even with a body; httptools takes the body for the other protocol.
        """
        self._http.connection_lost(ConnectionAbortedError())
        self._http = H11Protocol(**self._made)
        self._http.connection_made(cast("asyncio.Transport", self))

    def _end_if_idle(self) -> None:
        if self.is_in_head:
            self._transport.close()


class ConnectionLimits:
    """All connections of one worker, and how many there may be.

    Args:
        state: The worker's state, with metrics and log.
    """

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self._full = Repeated(_log)
        self.connections: set[Connection] = set()

    def enter(self, connection: Connection) -> None:
        """Take in a new connection; if there are too many, make room, else keep it for probes, else refuse it."""
        self.connections.add(connection)
        if len(self.connections) > MOST_CONNECTIONS:
            connection.is_for_probes = not self._make_room(connection)
        if len(self.connections) > MOST_CONNECTIONS + PROBE_CONNECTIONS:
            connection.refuse(503, "too many connections: ask again", b"retry-after: 1\r\n")

    def refused(self, status: int, reason: str) -> None:
        """Count and log a refusal by a connection, before there was a request."""
        self._state.count_request(RequestContext(status=status), reason)

    async def watch(self) -> None:
        """Close connections whose clients are too slow, for as long as the worker runs."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            for connection in list(self.connections):
                connection.check(now)

    def _make_room(self, newest: Connection) -> bool:
        """Close the longest-waiting connections of the client address that has the most waiting connections.

        Connections between requests or in a head are closed first, then those that wait for a body. Returns False if
        all connections are busy.
        """
        waiting = [
            connection
            for connection in self.connections
            if not (connection.is_working or connection.is_closing() or connection is newest)
        ]
        if not waiting:
            return False
        busiest, _ = Counter(connection.address for connection in waiting).most_common(1)[0]
        from_busiest = [connection for connection in waiting if connection.address == busiest]
        closed = heapq.nsmallest(
            CLOSED_AT_ONCE, from_busiest, key=lambda connection: (not connection.is_in_head, connection.waits_since)
        )
        for connection in closed:
            connection.cut()
            self.connections.discard(connection)  # otherwise it counts until the event loop's next turn
        self._state.metrics.closed_connections(len(closed))
        self._full.log(logging.WARNING, "too many connections", "those that waited longest for their caller are closed")
        return True
