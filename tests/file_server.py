"""A server of files over HTTP, for tests: ETags, ranges, and what goes wrong with them."""

from __future__ import annotations

import contextlib
import hashlib
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class FileServer:
    """What a server has, how it behaves, and what was asked of it.

    Attributes:
        files: Content by path.
        kinds: Content type by path; default: `text/csv`.
        status: The status of every answer by path, in place of 200.
        moved: Where a path is redirected to.
        knows_ranges: Whether a part of a file can be asked for.
        has_versions: Whether it sends ETags.
        break_after: Bytes of content after which each connection breaks; None: it never does.
        delay_s: Seconds before each answer.
        on_content: Called before each answer with content.
        sent: Bytes of content that were sent.
        asked: The methods and paths of all requests.
    """

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    status: dict[str, int] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    knows_ranges: bool = True
    has_versions: bool = True
    break_after: int | None = None
    delay_s: float = 0.0
    on_content: Callable[[], None] = lambda: None
    sent: int = 0
    asked: list[str] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    """Answers requests by what `served` has."""

    protocol_version = "HTTP/1.1"
    served: FileServer

    def do_HEAD(self) -> None:
        """Answer without content."""
        self.answer(with_content=False)

    def do_GET(self) -> None:
        """Answer with content."""
        self.answer(with_content=True)

    def answer(self, *, with_content: bool) -> None:
        """Send a redirection, an error, a file or a part of it."""
        served, path = self.served, self.path.partition("?")[0]
        served.asked.append(f"{self.command} {self.path}")
        time.sleep(served.delay_s)
        if path in served.moved:
            self.send_response(302)
            self.send_header("Location", served.moved[path])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if with_content:
            served.on_content()
        content = served.files.get(path)
        status, body = served.status.get(path, 404 if content is None else 200), content or b""
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        version = hashlib.md5(body).hexdigest()
        if wanted and served.knows_ranges and status == 200:
            status, body = 206, body[int(wanted[1]) : int(wanted[2]) + 1]
        self.send_response(status)
        self.send_header("Content-Type", served.kinds.get(path, "text/csv"))
        self.send_header("Content-Length", str(len(body)))
        if served.has_versions:
            self.send_header("ETag", f'"{version}"')
        self.end_headers()
        if with_content:
            cut = body if served.break_after is None else body[: served.break_after]
            served.sent += len(cut)
            self.wfile.write(cut)
            self.close_connection = self.close_connection or len(cut) < len(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
        del format, args


@contextlib.contextmanager
def file_server(certificate: Path | None = None) -> Iterator[FileServer]:
    """Run a server in threads of this process, on a free port; with TLS if a folder has its certificate."""
    served = FileServer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Serving", (Handler,), {"served": served}))
    server.daemon_threads = True
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    served.address = f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
