"""The rate limiter: a token bucket for each caller, in memory that all workers of a server share.

Of several servers each takes its share, the rate divided by the live ones: no request asks another machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import time
from pathlib import Path

from models.serving.http_errors import RequestError
from tasks.release.shared_state import SharedNumber

SLOTS = 1 << 14
NEAR = 8
"""Slots that a caller's bucket may occupy; if all are taken, the least recently used one is replaced."""
_SLOT_BYTES = 24
"""A slot: hash of the caller, tokens left, time of that count (`time.monotonic`, the same for all processes)."""


class RateLimiter:
    """A token bucket for each caller: it gains `rate` tokens a second and holds at most one second's worth.

    Source: the token bucket of RFC 2697, with one rate.

    Args:
        rate: Requests a second.
        path: A file that the workers share; it must not exist before the first worker starts. None: one worker.
        num_servers: How many servers divide the rate, which may change. None: this one alone.
    """

    def __init__(self, rate: float, path: Path | None = None, num_servers: SharedNumber | None = None) -> None:
        self._whole_rate, self._num_servers = rate, num_servers
        self._file = None if path is None else _opened(path)
        size = SLOTS * _SLOT_BYTES
        memory = memoryview(mmap.mmap(-1 if self._file is None else self._file, size))
        self._callers, self._numbers = memory.cast("Q"), memory.cast("d")

    def take(self, caller: str, now: float | None = None) -> None:
        """Take one token from a caller's bucket.

        Raises:
            RequestError: 429, the bucket is empty.
        """
        key = int.from_bytes(hashlib.blake2b(caller.encode("utf-8", "surrogatepass"), digest_size=8).digest()) or 1
        if self._file is None:
            tokens = self._taken(key, time.monotonic() if now is None else now)
        else:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                tokens = self._taken(key, time.monotonic() if now is None else now)
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        if tokens < 1:
            after_s = max(1, round((1 - tokens) / self._rate))
            share = f" ({self._rate:.3g} at each of {self._divisor} servers)" if self._divisor > 1 else ""
            message = f"more than {self._whole_rate:g} requests a second{share}: ask again in {after_s} s"
            raise RequestError(429, message, {"retry-after": str(after_s)})

    @property
    def _divisor(self) -> int:
        return max(1, self._num_servers.value) if self._num_servers is not None else 1

    @property
    def _rate(self) -> float:
        return self._whole_rate / self._divisor

    def _taken(self, key: int, now: float) -> float:
        """Take one token; return how many the bucket held before."""
        callers, numbers, slot = self._callers, self._numbers, self._place(key)
        rate = self._rate
        tokens = capacity = max(1.0, rate)
        if callers[slot] == key:
            tokens = min(capacity, numbers[slot + 1] + max(0.0, now - numbers[slot + 2]) * rate)
        callers[slot], numbers[slot + 1], numbers[slot + 2] = key, tokens - 1 if tokens >= 1 else tokens, now
        return tokens

    def _place(self, key: int) -> int:
        callers, numbers = self._callers, self._numbers
        first = 3 * (key % SLOTS)
        if callers[first] == key:
            return first
        places = [3 * ((key + near) % SLOTS) for near in range(NEAR)]
        for slot in places:
            if callers[slot] == key:
                return slot
        return min(places, key=lambda slot: numbers[slot + 2])


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.ftruncate(file, SLOTS * _SLOT_BYTES)
    return file
