"""Connections to a database server that restarts: whoever does work that would be lost waits for the server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Engine

_POLL_S = 0.2
_limits: list[float] = []


@contextlib.contextmanager
def patience(limit_s: float) -> Iterator[None]:
    """Within the block, this process waits for a database server that is away, up to `limit_s` seconds a connection.

    A command that only shows something has no patience: it says at once that the server is away.
    """
    _limits.append(limit_s)
    try:
        yield
    finally:
        _limits.remove(limit_s)


def reconnect(engine: Engine) -> None:
    """Have an engine wait for its server, as long as the process's `patience` lasts.

    An engine with `pool_pre_ping` so survives a restart between two transactions. A transaction that the restart cuts
    off raises its error.
    """
    from sqlalchemy import event

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _: Any, args: Any, options: Any) -> Any:
        begin = time.monotonic()
        while True:
            try:
                return dialect.connect(*args, **options)
            except dialect.loaded_dbapi.OperationalError:
                if time.monotonic() - begin >= max(_limits, default=0.0):
                    raise
                time.sleep(_POLL_S)
