"""The quick look into the registry gives what MLflow would say, and an absent registry is no registry."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from models.errors import StoreError
from models.serving.registry import RegisteredVersion
from models.serving.registry_comparison import OWNER, Projection
from tasks.host import database as state_database
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.mlflow import registry_reader
from tasks.mlflow.registry_reader import aliased, check, check_answers, foreign_owner, reading
from tasks.state import registered_models
from tests.serving import register


@pytest.fixture
def database(workspace: Workspace) -> Path:
    return stores.database_file(stores.environment(workspace)["MLFLOW_TRACKING_URI"])


def test_looking_changes_nothing(database: Path) -> None:
    aliased("tiny")
    assert not database.exists()


def test_a_file_that_is_no_database_is_a_store_error(database: Path) -> None:
    database.parent.mkdir(parents=True, exist_ok=True)
    database.write_text("this is not a database, not at all" * 100)
    with pytest.raises(StoreError, match="cannot be used: it is damaged: put it back from a copy"):
        aliased("tiny")


class Answers(BaseHTTPRequestHandler):
    """Answers as MLflow's server does; `code` and `body` are set by the test."""

    code = 200
    body = b""
    asked: tuple[str, str | None] = ("", None)

    def do_GET(self) -> None:
        type(self).asked = (self.path, self.headers.get("Authorization"))
        self.send_response(self.code)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Answers]]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}/")
        Answers.code, Answers.body = 200, b""
        yield Answers
        server.shutdown()
        thread.join()


def test_over_rest(server: type[Answers], monkeypatch: pytest.MonkeyPatch) -> None:
    server.body = b'{"model_version": {"version": "7", "tags": [{"key": "a", "value": "b"}]}}'
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret")
    assert aliased("tiny", "challenger") == RegisteredVersion(number="7", tags={"a": "b"})
    assert server.asked == ("/api/2.0/mlflow/registered-models/alias?name=tiny&alias=challenger", "Bearer secret")


def test_over_rest_with_user_and_password(server: type[Answers], monkeypatch: pytest.MonkeyPatch) -> None:
    server.body = b'{"model_version": {"version": "7"}}'
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ada")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "lovelace")
    assert aliased("tiny") == RegisteredVersion(number="7", tags={})
    assert server.asked[1] == "Basic YWRhOmxvdmVsYWNl"


@pytest.mark.parametrize("code", [404, 400])
def test_no_such_model_over_rest(server: type[Answers], code: int) -> None:
    server.code = code
    assert aliased("tiny") is None


@pytest.mark.parametrize(("code", "body"), [(500, b""), (403, b""), (200, b"<html>"), (200, b"{}")])
def test_a_registry_that_does_not_answer_as_one_is_a_store_error(server: type[Answers], code: int, body: bytes) -> None:
    server.code, server.body = code, body
    with pytest.raises(StoreError, match="the registry at"):
        aliased("tiny")


def test_a_registry_that_is_away_is_a_store_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1"):
        aliased("tiny")


ANYTHING = "/api/2.0/mlflow/registered-models/search?max_results=1"


def test_a_server_is_asked_whether_it_answers_before_mlflows_client_waits_for_it(
    server: type[Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    for code in (200, 401, 404):
        server.code = code
        check_answers()
        assert server.asked[0] == ANYTHING
    server.code, server.asked = 500, ("", None)
    with reading():
        for address in (ANYTHING, ""):  # the second time it is not asked
            with pytest.raises(StoreError, match=r"cannot be used: HTTP Error 500.*loopline reap"):
                check_answers()
            assert server.asked[0] == address
            server.asked = ("", None)
    monkeypatch.setattr(registry_reader, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # as a server that was stopped by SIGSTOP
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for question in (check_answers, check):
            with pytest.raises(StoreError, match="timed out"):
                question()


def test_a_shared_registry_that_nobody_looked_at_is_asked_whose_a_model_is(
    workspace: Workspace, server: type[Answers]
) -> None:
    tag = {"key": OWNER, "value": "other"}
    server.body = json.dumps({"registered_model": {"tags": [tag]}}).encode()
    assert foreign_owner(workspace.state, "tiny") == "other"
    assert server.asked[0] == "/api/2.0/mlflow/registered-models/get?name=tiny"
    server.code = 500
    assert foreign_owner(workspace.state, "tiny") == "", "it is away"
    server.code, server.asked = 200, ("", None)
    with state_database.writing(workspace.state) as connection:
        registered_models.save(connection, "tiny", Projection("third", looked=1.0))
    assert foreign_owner(workspace.state, "tiny") == "third"
    assert server.asked == ("", None)


def test_an_embedded_store_is_not_asked_whose_a_model_is(database: Path, workspace: Workspace) -> None:
    database.parent.mkdir(parents=True, exist_ok=True)
    database.write_text("this is not a database")
    assert foreign_owner(workspace.state, "tiny") == ""


LOOK = """
import os
import sys
from pathlib import Path
from models.errors import StoreError
from tasks.mlflow import model_cache, registry, release_plans
from tasks.mlflow.registry_reader import aliased, named
assert named(Path(sys.argv[1]), "tiny").number == "3"
os.environ["MLFLOW_TRACKING_URI"] = "http://127.0.0.1:1"
try:
    aliased("tiny")
except StoreError:
    assert "mlflow" not in sys.modules
else:
    raise AssertionError
"""


def test_a_look_does_not_import_mlflow(workspace: Workspace) -> None:
    """Its import takes more than a second; `plan`, `status` and a loop with nothing to do only look."""
    register(workspace, "tiny", "3", {}, workspace.root, "champion")
    with state_database.writing(workspace.state) as connection:
        registered_models.save(connection, "tiny", Projection(looked=1.0))
    subprocess.run([sys.executable, "-c", LOOK, str(workspace.state)], check=True, cwd=Path(__file__).parents[4])
