"""The part of MLflow's REST API by which a server follows an alias, over versions that a test registers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tasks.host.workspace import Workspace

NAMES = "/api/2.0/mlflow/"


@dataclass
class AliasServer:
    """A registry of one model: aliases and versions, by number. `requests`: the endpoints that were asked."""

    aliases: dict[str, str] = field(default_factory=dict)
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def register(
        self, _: Workspace, __: str, number: str, tags: Mapping[str, str], source: Path, alias: str | None
    ) -> None:
        """Register a version, and set an alias on it; as `tests.serving.register`."""
        self.tags[number] = {**self.tags.get(number, {}), **tags}
        self.sources[number] = str(source)
        if alias:
            self.aliases[alias] = number

    def answer(self, endpoint: str, query: Mapping[str, str]) -> dict[str, Any] | None:
        """Return what MLflow answers; None: there is no such model, version or alias."""
        self.requests.append(endpoint)
        number = query.get("version") or self.aliases.get(query.get("alias", ""), "")
        if number not in self.tags:
            return None
        if endpoint == "model-versions/get-download-uri":
            return {"artifact_uri": self.sources[number]}
        tags = [{"key": key, "value": value} for key, value in self.tags[number].items()]
        return {"model_version": {"version": number, "tags": tags}}


@contextlib.contextmanager
def alias_server() -> Iterator[tuple[AliasServer, str]]:
    """Yield a registry and its address, until the block ends."""
    registry = AliasServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            document = registry.answer(parts.path.removeprefix(NAMES), query)
            self.send_response(404 if document is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(document or {}).encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield registry, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
