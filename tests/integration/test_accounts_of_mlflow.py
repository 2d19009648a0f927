"""Two workspaces and their accounts share one MLflow server, which knows what each account may do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli import loopline
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow.registry_reader import registered
from tests.conftest import MakeProject
from tests.mlflow_accounts import ADMIN, account, permit, serving_accounts
from tests.registered import register_served

READER = "reader"


@pytest.fixture(scope="module")
def server(empty_store: Path, tmp_path_factory: pytest.TempPathFactory, module_environment: None) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("accounts")
    shutil.copytree(empty_store, folder, dirs_exist_ok=True)
    with serving_accounts(folder, READER) as url:
        yield url


@pytest.fixture
def shared(workspace: Workspace, server: str, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace whose account may do everything at the server."""
    as_account(monkeypatch, account(server, ADMIN))
    return workspace


def as_account(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def said(*command: str) -> str:
    result = CliRunner().invoke(loopline, command)
    return " ".join(f"{result.output}{result.exception or ''}".split())


LACKING = "give it MANAGE on the project's registered model and experiment"


def test_an_account_that_may_only_read_decides_and_is_told_the_permission(
    shared: Workspace, server: str, make_project: MakeProject, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(model)
    for number in ("1", "2"):
        register_served(shared, model, number)
    open_registry(shared, model).promote("1", None)
    as_account(monkeypatch, account(server, READER))
    assert LACKING in said("promote", model, "2", "--expect", "1")
    assert open_registry(shared, model).champion().number == "2"
    assert registered(model).aliases["champion"] == "1"
    for command in ("status", "doctor"):
        assert LACKING in said(command), command
    permit(server, READER, model, "MANAGE")
    open_registry(shared, model).look()
    assert registered(model).aliases["champion"] == "2"
    assert LACKING not in said("doctor")


def test_an_account_that_mlflow_does_not_know_is_told_where_its_password_stands(
    shared: Workspace, server: str, make_project: MakeProject, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(model)
    register_served(shared, model, "1")
    as_account(monkeypatch, account(server, READER, "a-wrong-password"))
    for command in (["promote", model, "1"], ["status"], ["doctor"]):
        assert "correct MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" in said(*command), command
