"""Deployments through a Prefect server that is slow: it answers too late, or says that it is busy."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    temporary_settings,
)

from flows.prefect import deployments
from flows.prefect.deployments import KINDS, deploy
from tasks.prefect import flow_runs
from tasks.prefect.flow_runs import ask
from tests.conftest import MakeProject

TIMEOUT_S = 1.5
"""Of the clients here; the clients of a user wait for 30 and 60 s."""
NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=/name/).*|(?<=/slug/).*")
"""What differs between requests of one kind: ids and names."""


def changes(command: str, path: str) -> bool:
    """Whether a request is more than a question: one that is carried out and answered too late comes twice."""
    return command != "GET" and not path.endswith("/filter")


class SlowServer(ThreadingHTTPServer):
    """Stands before a Prefect server; the first request of each kind that `fails` names fails for the client.

    Every other kind of request is carried out, and its answer comes too late; the others get 503.
    """

    daemon_threads = True

    def __init__(self, api: str, fails: Callable[[str, str], bool]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fails = fails
        self.api, self.kinds, self.is_over = api, list[str](), threading.Event()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api"

    def is_first(self, kind: str) -> bool:
        with self._lock:
            is_new = kind not in self.kinds
            self.kinds += [kind] if is_new else []
            return is_new


class _Handler(BaseHTTPRequestHandler):
    server: SlowServer
    protocol_version = "HTTP/1.1"

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        may_fail = self.server.fails(self.command, self.path)
        is_first = may_fail and self.server.is_first(f"{self.command} {NAMES.sub('', self.path)}")
        if is_first and len(self.server.kinds) % 2:
            self._answer(503, b"{}")
            return
        status, content = self._carried_out(body)
        if is_first:
            self.server.is_over.wait(2 * TIMEOUT_S)
        with contextlib.suppress(OSError):
            self._answer(status, content)

    def _carried_out(self, body: bytes) -> tuple[int, bytes]:
        names = ("Content-Type", "Authorization", "X-Prefect-Api-Version")
        headers = {name: self.headers[name] for name in names if self.headers[name]}
        url = f"{self.server.api.removesuffix('/api')}{self.path}"
        try:
            request = urllib.request.Request(url, body or None, headers, method=self.command)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _hand_on  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture(params=[changes, lambda *_: True], ids=["changes", "all"])
def slow(api: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[SlowServer]:
    with SlowServer(api, request.param) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PREFECT_API_URL", server.url)
        monkeypatch.setattr(flow_runs, "ANSWER_S", TIMEOUT_S)
        monkeypatch.setattr(deployments, "PAUSE_S", 0.05)
        settings = {
            PREFECT_API_URL: server.url,
            PREFECT_API_AUTH_STRING: os.environ["PREFECT_API_AUTH_STRING"],
            PREFECT_API_REQUEST_TIMEOUT: TIMEOUT_S,
            PREFECT_CLIENT_MAX_RETRIES: 0,
        }
        with temporary_settings(settings):
            yield server
        server.is_over.set()
        server.shutdown()


@pytest.mark.wide
def test_deployments_are_applied_whichever_request_fails_first(
    slow: SlowServer, api: str, make_project: MakeProject
) -> None:
    name, notes = f"tiny-{secrets.token_hex(3)}", list[str]()
    project = make_project(name, "retrain: {on: [new_data]}\n")
    deploy(project.workspace, [project], note=notes.append)
    assert {"POST /api/flows/", "POST /api/deployments/"} <= {*slow.kinds}
    assert notes.count("Prefect's server is busy: the deployments are tried again") >= len(slow.kinds) / 2
    stored = ask(api, "deployments/filter", {"deployments": {"name": {"any_": [name]}}})
    assert sorted(deployment["entrypoint"].rpartition(".")[2] for deployment in stored) == sorted(
        kind.flow for kind in KINDS
    )
