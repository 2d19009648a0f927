"""One environment for every tool: inside the workspace unless the user says otherwise, quiet always."""

import os
from pathlib import Path

import pytest

from tasks.runtime import stores
from tasks.runtime.workspace import Workspace


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    for key in stores.environment(Workspace(tmp_path)):
        monkeypatch.delenv(key, raising=False)
    return Workspace(tmp_path)


def test_everything_lies_in_the_workspace(clean: Workspace) -> None:
    told = stores.environment(clean)
    assert told["MLFLOW_TRACKING_URI"] == f"sqlite:///{clean.state}/mlflow/mlflow.db"
    assert told["PREFECT_HOME"].startswith(str(clean.state))
    assert told["DVC_SITE_CACHE_DIR"].startswith(str(clean.state))


def test_what_the_user_has_set_wins(clean: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org")
    assert stores.environment(clean)["MLFLOW_TRACKING_URI"] == "https://mlflow.example.org"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    assert stores.environment(clean)["MLFLOW_TRACKING_URI"].startswith("sqlite:///")


@pytest.mark.parametrize(
    ("key", "off"),
    [
        ("DO_NOT_TRACK", "true"),
        ("DVC_NO_ANALYTICS", "1"),
        ("GX_ANALYTICS_ENABLED", "false"),
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
        ("PREFECT_SERVER_ANALYTICS_ENABLED", "false"),
    ],
)
def test_telemetry_is_off(clean: Workspace, key: str, off: str) -> None:
    assert stores.environment(clean)[key] == off


def test_no_value_is_empty(clean: Workspace) -> None:
    assert all(stores.environment(clean).values())


def test_configure_sets_this_process(clean: Workspace) -> None:
    stores.configure(clean)
    assert os.environ["PREFECT_HOME"] == str(clean.state / "prefect")


@pytest.mark.parametrize(
    ("uri", "embedded"),
    [("sqlite:////a/mlflow.db", True), ("http://a", False), ("postgresql://u:p@h/db", False)],
)
def test_which_store_is_the_workspaces_own(uri: str, embedded: bool) -> None:
    assert stores.is_embedded(uri) is embedded


def test_the_file_behind_a_uri(clean: Workspace) -> None:
    uri = stores.environment(clean)["MLFLOW_TRACKING_URI"]
    assert stores.database_file(uri) == clean.state / "mlflow" / "mlflow.db"


def test_a_store_elsewhere_is_not_ours_to_make(clean: Workspace) -> None:
    stores.initialise_mlflow(clean, {"MLFLOW_TRACKING_URI": "http://127.0.0.1:1"})
    assert not (clean.state / "mlflow").exists()
