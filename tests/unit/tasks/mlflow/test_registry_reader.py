"""The quick look into the registry gives what MLflow would say, and an absent registry is no registry."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from models.errors import StoreError
from models.pipeline.records import StepRecord
from models.serving.registry import RegisteredVersion
from models.serving.registry_comparison import OWNER, Projection
from tasks.host import database as state_database
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.mlflow import registry_reader
from tasks.mlflow.registry_reader import aliased, foreign_owner, refuse_lost
from tasks.state import registered_models
from tasks.state.step_records import StepRecords

TABLES = """
create table registered_model_aliases (name text, alias text, version integer);
create table model_version_tags (name text, version integer, key text, value text);
insert into registered_model_aliases values ('tiny', 'champion', 3);
insert into model_version_tags values ('tiny', 3, 'loopline.weights_sha256', 'abcdef'), ('tiny', 2, 'x', 'y');
"""


def write(path: Path, script: str = TABLES) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


@pytest.fixture
def database(workspace: Workspace) -> Path:
    return stores.database_file(stores.environment(workspace)["MLFLOW_TRACKING_URI"])


def test_an_alias_gives_number_and_tags(database: Path) -> None:
    write(database)
    found = aliased("tiny")
    assert found == RegisteredVersion(number="3", tags={"loopline.weights_sha256": "abcdef"})
    assert found.identity == "3:abcdef"
    assert aliased("tiny", "challenger") is None
    assert aliased("other") is None


def test_no_file_and_no_tables_are_no_champion(database: Path) -> None:
    assert aliased("tiny") is None
    write(database, "create table x (y int);")
    assert aliased("tiny") is None


def test_all_of_a_reading_is_read_by_one_connection_that_sees_changes(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(database)
    opened = []
    connect = sqlite3.connect

    def counted(*args: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*args, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", counted)
    with registry_reader.reading():
        assert [aliased("tiny").number, aliased("tiny").number] == ["3", "3"]
        (only,) = opened
        with closing(connect(database)) as writer, writer:
            writer.execute("update registered_model_aliases set version = 2")
        assert aliased("tiny").number == "2"
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        only.execute("select 1")
    assert aliased("tiny").number == "2"
    assert len(opened) == 2


def test_a_store_that_lost_what_was_registered_in_it_is_no_new_one(
    workspace: Workspace, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the records name another store, or it only lost the version: a person deletes those in MLflow."""

    def registered(store: str) -> None:
        result = {"version": "3", "store": store}
        record = StepRecord(step="register", key="k", parts={}, digest="d", result=result, loop_id="l", finished=1.0)
        StepRecords(workspace.state / "projects" / "tiny", workspace.root).save(record)

    refuse_lost(workspace, "tiny")
    registered("own")
    for script in ("", "create table experiments (name text); insert into experiments values ('other');"):
        write(database, script)
        with pytest.raises(StoreError, match="whose version 3 was registered there"):
            refuse_lost(workspace, "tiny")
    write(database, "insert into experiments values ('tiny');")
    refuse_lost(workspace, "tiny")
    write(database, "delete from experiments;")
    registered("http://elsewhere")
    refuse_lost(workspace, "tiny")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    registered("http://127.0.0.1:1")
    refuse_lost(workspace, "tiny")


def test_looking_changes_nothing(database: Path) -> None:
    aliased("tiny")
    assert not database.exists()


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b", "a%20b"])
def test_a_workspace_of_any_name_can_be_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / name / "mlflow.db"
    write(path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
    found = aliased("tiny")
    assert found is not None
    assert found.number == "3"


def test_a_file_that_is_no_database_is_a_store_error(database: Path) -> None:
    database.parent.mkdir(parents=True, exist_ok=True)
    database.write_text("this is not a database, not at all" * 100)
    with pytest.raises(StoreError, match="registry cannot be read: it is damaged: put it back from a copy"):
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


def test_a_store_named_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    assert aliased("tiny") is not None


LOOK = """
import sys
from tasks.mlflow import model_cache, registry, release_plans
from tasks.mlflow.registry_reader import aliased, registered
assert aliased("tiny").number == "3"
assert registered("tiny").aliases == {"champion": "3"}
assert "mlflow" not in sys.modules
"""


def test_a_look_does_not_import_mlflow(database: Path) -> None:
    """Its import takes more than a second; `plan`, `status` and a loop with nothing to do only look."""
    write(database, TABLES + "create table registered_model_tags (workspace text, name text, key text, value text);")
    subprocess.run([sys.executable, "-c", LOOK], check=True, cwd=Path(__file__).parents[4])
