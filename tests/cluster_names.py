"""A name server for a test's cluster, in CoreDNS's place: the pods of headless services, as the API server has them."""

from __future__ import annotations

import contextlib
import json
import socketserver
import ssl
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

DOMAIN = "svc.cluster.local"
_A, _OK, _NO_SUCH_NAME = 1, 0x8580, 0x8583


@contextlib.contextmanager
def serve_names(host: str, server: str, token: str) -> Iterator[None]:
    """Answer at port 53 of `host` as long as the context lasts."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            query, socket = self.request
            socket.sendto(answer(query, self.server.addresses()), self.client_address)  # type: ignore[attr-defined]

    class Server(socketserver.ThreadingUDPServer):
        allow_reuse_address, daemon_threads = True, True
        known: dict[str, str] = {}  # noqa: RUF012 - one server

        def addresses(self) -> dict[str, str]:
            with contextlib.suppress(
                urllib.error.URLError, OSError
            ):  # the API server may be away: what was known stays
                self.known = addresses(server, token)
            return self.known

    with Server((host, 53), Handler) as names:
        threading.Thread(target=names.serve_forever, daemon=True).start()
        yield
        names.shutdown()


def addresses(server: str, token: str) -> dict[str, str]:
    """Full name of each pod of a headless service -> its address."""
    request = urllib.request.Request(
        f"{server}/apis/discovery.k8s.io/v1/endpointslices", headers={"Authorization": f"Bearer {token}"}
    )
    context = ssl._create_unverified_context()
    with urllib.request.urlopen(request, timeout=2, context=context) as reply:
        slices: list[dict[str, Any]] = json.load(reply)["items"]
    return {
        f"{endpoint['hostname']}.{each['metadata']['labels']['kubernetes.io/service-name']}."
        f"{each['metadata']['namespace']}.{DOMAIN}": endpoint["addresses"][0]
        for each in slices
        for endpoint in each.get("endpoints") or ()
        if endpoint.get("hostname")
    }


def answer(query: bytes, known: dict[str, str]) -> bytes:
    """The reply to a query of one name."""
    (number,) = struct.unpack_from("!H", query)
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    question = query[12 : at + 5]
    (kind,) = struct.unpack_from("!H", query, at + 1)
    address = known.get(".".join(labels).lower())
    if address is None:
        return struct.pack("!6H", number, _NO_SUCH_NAME, 1, 0, 0, 0) + question
    if kind != _A:
        return struct.pack("!6H", number, _OK, 1, 0, 0, 0) + question
    record = struct.pack("!3HIH", 0xC00C, _A, 1, 0, 4) + bytes(int(part) for part in address.split("."))
    return struct.pack("!6H", number, _OK, 1, 1, 0, 0) + question + record
