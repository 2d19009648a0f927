"""The secret of the workspace's own Prefect server: who makes it, who hears it."""

import os
import stat

import pytest

from models.files import write_json, write_text
from tasks.host import server_access, stores
from tasks.host.server_access import credentials, is_own, make_secret, secret_path, server_environment
from tasks.host.workspace import Workspace

OWN = "http://127.0.0.1:4200/api"


@pytest.fixture
def secret(workspace: Workspace) -> str:
    made = make_secret(workspace)
    write_text(workspace.state / "prefect" / "port", "4200")
    return made


def test_it_is_made_once_for_its_owner_alone(workspace: Workspace, secret: str) -> None:
    assert secret.startswith("loopline:")
    assert len(secret) > 40
    assert make_secret(workspace) == secret
    assert stat.S_IMODE(secret_path(workspace).stat().st_mode) == 0o600


def test_who_speaks_to_the_own_server_knows_it_and_no_other_server_hears_it(workspace: Workspace, secret: str) -> None:
    for api in ("", OWN, f"{OWN}/", "http://localhost:4200/api"):
        assert credentials(workspace, {"PREFECT_API_URL": api})["PREFECT_API_AUTH_STRING"] == secret
    for api in ("https://prefect.example/api", "http://127.0.0.1:4201/api"):
        assert "PREFECT_API_AUTH_STRING" not in credentials(workspace, {"PREFECT_API_URL": api})


def test_a_server_under_way_is_the_own_one_though_the_next_is_to_listen_elsewhere(
    workspace: Workspace, secret: str
) -> None:
    """`loopline up --port prefect=4200` beside a loop's own server at 4555."""
    write_json(workspace.state / "prefect" / "server.json", {"port": 4555})
    assert is_own(workspace, "http://127.0.0.1:4555/api")
    assert is_own(workspace, OWN)
    assert not is_own(workspace, "http://127.0.0.1:4201/api")


def test_mlflows_client_knows_it_and_no_server_elsewhere_hears_it(workspace: Workspace, secret: str) -> None:
    write_json(workspace.state / "platform" / "ports.json", {"ports": {"mlflow": 5000}})
    ours = {"MLFLOW_TRACKING_USERNAME": "loopline", "MLFLOW_TRACKING_PASSWORD": secret.partition(":")[2]}
    elsewhere = {"PREFECT_API_URL": "https://prefect.example/api"}
    for uri in ("", "sqlite:///mlflow.db", "http://127.0.0.1:5000", "http://localhost:5000/"):
        assert credentials(workspace, {**elsewhere, "MLFLOW_TRACKING_URI": uri}) == ours
    for uri in ("https://mlflow.example", "http://127.0.0.1:5001"):
        assert credentials(workspace, {**elsewhere, "MLFLOW_TRACKING_URI": uri}) == {}
    for own in ({"MLFLOW_TRACKING_USERNAME": "ada"}, {"MLFLOW_TRACKING_TOKEN": "t"}):
        assert credentials(workspace, {**elsewhere, **own}) == {}, "the user has named somebody"


def test_without_a_server_there_is_none(workspace: Workspace) -> None:
    assert credentials(workspace, {}) == {}
    assert not secret_path(workspace).exists()


def test_every_tool_gets_it_and_it_wins_over_that_of_a_server_elsewhere(
    workspace: Workspace, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "of another server")
    assert stores.environment(workspace)["PREFECT_API_AUTH_STRING"] == secret
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example/api")
    assert "PREFECT_API_AUTH_STRING" not in stores.environment(workspace)
    server_access.use(workspace, OWN)
    assert (os.environ["PREFECT_API_URL"], os.environ["PREFECT_API_AUTH_STRING"]) == (OWN, secret)


def test_the_server_asks_for_it_and_answers_no_page_but_its_own(workspace: Workspace, secret: str) -> None:
    told = server_environment(workspace, 4200)
    assert told["PREFECT_SERVER_API_AUTH_STRING"] == told["PREFECT_API_AUTH_STRING"] == secret
    assert told["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == "http://127.0.0.1:4200,http://localhost:4200"
