"""A secret goes to the server that it was given for (scheme, host and port), and to no other, by any of our clients."""

import http.server
import importlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from models.errors import StoreError
from models.serving.registry import RegisteredVersion
from tasks.host.http_guard import SERVE_TOKEN, token_of
from tasks.mlflow import model_cache, registry_reader
from tasks.prefect.flow_runs import ask
from tests.running import ROOT
from tests.serving import crown

SECRET = "a-secret-of-the-tests"
SECRETS = {
    "MLFLOW_TRACKING_TOKEN": SECRET,
    "MLFLOW_TRACKING_USERNAME": "ada",
    "MLFLOW_TRACKING_PASSWORD": SECRET,
    "PREFECT_API_AUTH_STRING": SECRET,
    "PREFECT_API_KEY": SECRET,
}


class Listener(http.server.ThreadingHTTPServer):
    """A server that notes the secret of each request; it answers 404, or leads to another address."""

    def __init__(self, leads_to: str = "") -> None:
        self.heard: list[str | None] = []
        self.leads_to = leads_to
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def netloc(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self) -> None:
        self.server.heard.append(self.headers.get("authorization"))
        self.send_response(302 if self.server.leads_to else 404)
        if self.server.leads_to:
            self.send_header("Location", self.server.leads_to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def listeners() -> Iterator[list[Listener]]:
    """Another server, and the registry's, which leads everybody to the other one."""
    other = Listener()
    own = Listener(f"http://{other.netloc}/elsewhere")
    for one in (own, other):
        threading.Thread(target=one.serve_forever, daemon=True).start()
    yield [own, other]
    for one in (own, other):
        one.shutdown()
        one.server_close()


@pytest.mark.parametrize("names", [["MLFLOW_TRACKING_TOKEN"], ["MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"]])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_version_that_names_another_server_gets_no_secret_of_the_registry(
    listeners: list[Listener], monkeypatch: pytest.MonkeyPatch, workspace: Any, names: list[str], scheme: str
) -> None:
    own, other = listeners
    for name in names:
        monkeypatch.setenv(name, SECRETS[name])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{scheme}://{own.netloc}")
    version = RegisteredVersion(number="1", tags={})
    monkeypatch.setattr(registry_reader, "named", lambda *_: version)
    places = (f"mlflow-artifacts://{other.netloc}/0/models/m-1/artifacts", f"http://{other.netloc}/m-1")
    for place in places:
        monkeypatch.setattr(registry_reader, "files_at", lambda *_, place=place: place)
        model_cache.with_verdict("m", version)
        assert set(other.heard) <= {None}
        with pytest.raises(StoreError, match="the secret of MLFLOW_TRACKING_URI must not go"):
            model_cache.fetch(workspace, "m", "1", workspace.root / "version")
    assert set(other.heard) <= {None}
    assert own.heard == []


def test_the_registrys_own_server_gets_it_and_no_server_to_which_it_leads(
    listeners: list[Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = listeners
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{own.netloc}")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", SECRET)
    for place in ("mlflow-artifacts:/0/a", f"mlflow-artifacts://{own.netloc}/0/a"):
        monkeypatch.setattr(registry_reader, "files_at", lambda *_, place=place: place)
        model_cache.with_verdict("m", RegisteredVersion(number="1", tags={}))
    assert registry_reader.aliased("m") is None
    assert own.heard == [f"Bearer {SECRET}"] * 3
    assert other.heard == [None] * 3


@pytest.mark.parametrize("name", ["PREFECT_API_AUTH_STRING", "PREFECT_API_KEY"])
def test_prefects_server_gets_it_and_no_server_to_which_it_leads(
    listeners: list[Listener], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    own, other = listeners
    monkeypatch.setenv(name, SECRET)
    with pytest.raises(StoreError):
        ask(f"http://{own.netloc}/api", "flows/filter", {}, "GET")
    assert [secret is not None for secret in own.heard] == [True]
    assert other.heard == [None]


def test_a_label_needs_the_servers_token_and_the_example_client_beside_the_workspace_has_it(workspace, serve) -> None:
    crown(workspace, "tiny")
    server = serve("tiny")
    server.token = None
    label = {"id": "a", "label": "yes"}
    assert server.post("/feedback", label).status == server.post("/models/tiny/feedback", label).status == 401
    assert server.post("/feedback", label, Authorization="Bearer wrong-token-of-nobody").status == 401
    assert server.post("/invocations", {"dataframe_records": [{"x": 1, "c": "u"}]}).status == 200
    taken = server.post("/feedback", label, Authorization=f"Bearer {token_of(workspace, SERVE_TOKEN)}")
    assert taken.ok().json["accepted"] == 1


def test_the_example_client_sends_the_workspaces_token_to_this_machine_alone(
    workspace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.root)
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "client"))
    client = importlib.import_module("client")
    token = token_of(workspace, SERVE_TOKEN)
    assert [client.token_here(f"http://{host}:8000") for host in ("127.0.0.1", "localhost")] == [token, token]
    assert client.token_here("http://ml.example.org:8000") is None
