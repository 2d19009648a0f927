"""A server that takes posted events as Prefect does."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """Takes posted events as Prefect does; `status` is what it answers."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 204
        self.bad: set[str] = set()
        self.deployed = True
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                posted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path.endswith("/automations/filter"):
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(json.dumps([posted] * receiver.deployed).encode())
                    return
                status = 422 if any(event["event"] in receiver.bad for event in posted) else receiver.status
                if status == 204:
                    receiver.events += posted
                    receiver.headers.append(dict(self.headers))
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/api"


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """Serve for the length of a block."""
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()
