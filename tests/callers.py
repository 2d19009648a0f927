"""Callers of a live server that ask again and again, and what they were answered, to the request."""

from __future__ import annotations

import http.client
import json
import threading
import time
from contextlib import closing
from typing import NamedTuple

from tests.serving import LiveServer

ROWS = {"dataframe_records": [{"x": 1.0, "c": "u"}]}


class Heard(NamedTuple):
    """One answer: when it was asked for and when it came, in monotonic seconds; status 0: the connection broke."""

    began: float
    ended: float
    status: int
    version: str


class Callers:
    """Threads that ask again and again, each on its own connection, while in the block."""

    def __init__(self, server: LiveServer, count: int, path: str = "/invocations", pause_s: float = 0.0) -> None:
        self.each: list[list[Heard]] = [[] for _ in range(count)]
        self._port, self._path, self._stop = server.port, path, threading.Event()
        self._pause_s = pause_s
        self._threads = [threading.Thread(target=self._call, args=(heard,)) for heard in self.each]

    @property
    def all(self) -> list[Heard]:
        return [heard for each in self.each for heard in each]

    @property
    def failed(self) -> int:
        """Answers that were none, or named one version in the header and another in the body."""
        return sum(heard.status != 200 for heard in self.all)

    def late(self, moves: list[tuple[float, str]]) -> int:
        """How many requests were answered by an old version though they began after somebody heard the new one.

        Args:
            moves: When the champion moved, and to which version; each other than the two before.
        """
        found = 0
        ends = [at for at, _ in moves[1:]] + [float("inf")]
        for (begin, version), end in zip(moves, ends, strict=True):
            during = [heard for heard in self.all if heard.began >= begin and heard.ended < end]
            first = min((heard.ended for heard in during if heard.version == version), default=float("inf"))
            found += sum(heard.version != version for heard in during if heard.began > first)
        return found

    def _call(self, found: list[Heard]) -> None:
        body = json.dumps(ROWS)
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)) as connection:
            while not self._stop.is_set():
                began, status, version = time.monotonic(), 0, ""
                try:
                    connection.request("POST", self._path, body, {"Content-Type": "application/json"})
                    answer = connection.getresponse()
                    told = json.loads(answer.read())
                    version = told.get("version", "")
                    status = answer.status if version == answer.headers.get("x-loopline-version", "") else -1
                except (OSError, http.client.HTTPException):
                    connection.close()
                found.append(Heard(began, time.monotonic(), status, version))
                time.sleep(self._pause_s)

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
