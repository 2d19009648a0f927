"""Two workspaces and their accounts share one MLflow server, which knows what each account may do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli import loopline
from models.errors import GateRefused
from models.serving.registry import MLFLOW
from models.serving.registry_comparison import OWNER
from tasks.host import database
from tasks.host.workspace import Project, Workspace
from tasks.loop.carry_moves import moved_in_mlflow
from tasks.loop.champion import open_registry
from tasks.loop.lifecycle import open_loop
from tasks.mlflow.client import client
from tasks.mlflow.registry_reader import registered
from tasks.release.registry_watcher import RegistryWatcher
from tasks.state.registered_models import foreign_owner
from tasks.state.workspace_id import workspace_id
from tests.conftest import MakeProject, Processes
from tests.mlflow_accounts import ADMIN, account, permit, serving_accounts
from tests.registered import register_served
from tests.wide import wide

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


def elsewhere(workspace: Workspace, name: str) -> Workspace:
    """Another workspace, at the same server."""
    other = Workspace(workspace.root.with_name(name))
    other.make()
    return other


CLAIM = """
from pathlib import Path
from models.errors import GateRefused
from tasks.host import database
from tasks.host.workspace import Project, Workspace
from tasks.loop.champion import open_registry
try:
    registry = open_registry(Workspace(Path({root!r})), {model!r})
    registry.promote({version!r}, None)
    print("waits" if registry.carrier.trouble else "won", registry.carrier.trouble)
except GateRefused as error:
    print("refused", error)
"""


def test_of_two_workspaces_that_claim_a_model_at_once_one_wins(
    shared: Workspace, model: str, at_once: Processes
) -> None:
    for number in ("1", "2"):
        register_served(shared, model, number)
    client().delete_registered_model_tag(model, OWNER)
    claimants = [elsewhere(shared, "first"), elsewhere(shared, "second")]
    codes = [
        CLAIM.format(root=str(claimant.root), model=model, version=version)
        for claimant, version in zip(claimants, ("1", "2"), strict=True)
    ]
    ended = at_once(*codes, timeout_s=120)
    printed = [process.stdout.split(" ")[0] for process in ended]
    said = [f"{process.stdout} {process.stderr}" for process in ended]
    assert {*printed} <= {"won", "waits", "refused"}, said
    assert printed.count("won") <= 1, said
    for claimant in claimants:
        open_registry(claimant, model).look()
    owners = [claimant for claimant in claimants if workspace_id(claimant.state) == registered(model).tags[OWNER]]
    assert len(owners) == 1
    newest = open_registry(owners[0], model).journal()[-1]
    assert registered(model).aliases["champion"] == newest.after
    (loser,) = (claimant for claimant in claimants if claimant not in owners)
    assert foreign_owner(loser.state, model) == workspace_id(owners[0].state)


@pytest.mark.wide  # the loser of the race above, and without accounts in test_shared_registries.py
def test_a_workspace_that_claims_late_gives_way_to_the_one_that_moved_the_model(shared: Workspace, model: str) -> None:
    register_served(shared, model, "1")
    open_registry(shared, model).promote("1", None)
    client().delete_registered_model_tag(model, OWNER)
    with pytest.raises(GateRefused, match="belongs to another workspace"):
        open_registry(elsewhere(shared, "late"), model).promote("1", None)
    assert registered(model).tags[OWNER] == workspace_id(shared.state)


def test_another_workspace_follows_is_refused_before_training_and_is_heard(
    shared: Workspace,
    make_project: MakeProject,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Over HTTP nothing needs a look before: the workspace asks the server whose model it is."""
    for number in ("1", "2"):
        register_served(shared, model, number)
    owner, other = open_registry(shared, model), elsewhere(shared, "other")
    owner.promote("1", None)
    project = Project(other, make_project(model, folder=other.root / "projects" / model).folder)
    monkeypatch.setenv("LOOPLINE_HOME", str(other.root))
    whose = f"belongs to another workspace, {workspace_id(shared.state)}"
    assert whose in said("plan", model)
    with pytest.raises(GateRefused, match=whose), open_loop(project):
        pass
    watcher = RegistryWatcher(other.state, model)
    for _ in range(2):
        assert watcher.champion().number == "1"  # type: ignore[union-attr]
    followed = f"{model}: its registered model belongs to another workspace, whose champion is served"
    assert caplog.messages.count(followed) == 1
    assert whose in said("promote", model, "2", "--expect", "1")

    client().set_registered_model_alias(model, "champion", "2")
    assert watcher.champion().number == "2"  # type: ignore[union-attr]
    assert moved_in_mlflow(shared) == [model]
    owner.look()
    assert (owner.journal()[-1].by, owner.champion().number) == (MLFLOW, "2")  # type: ignore[union-attr]


@pytest.mark.wide  # without accounts in test_shared_registries.py
def test_a_third_workspace_adopts_and_the_former_owner_follows_and_says_so(
    shared: Workspace, make_project: MakeProject, model: str
) -> None:
    project = make_project(model)
    for number in ("1", "2", "3"):
        register_served(shared, model, number)
    owner, third = open_registry(shared, model), elsewhere(shared, "third")
    owner.promote("1", None)
    owner.promote("2", "1")
    adopter = open_registry(third, model, "bob@away")
    assert adopter.adopt("the first machine is gone").after == "2"
    assert [move.after for move in adopter.journal()] == ["1", "2", "2"]
    adopter.promote("3", "2")

    assert moved_in_mlflow(shared) == [model]
    with pytest.raises(GateRefused, match=f"belongs to another workspace, {workspace_id(third.state)}"):
        owner.promote("1", "2")
    with pytest.raises(GateRefused, match="belongs to another workspace"), open_loop(project):
        pass
    assert "adopted the model: this one follows it from now on" in said("release", model, "--history")
    assert RegistryWatcher(shared.state, model).champion().number == "3"  # type: ignore[union-attr]
    assert (registered(model).aliases["champion"], moved_in_mlflow(shared)) == ("3", [])


@pytest.mark.parametrize("has_database", [wide(True), False])
def test_a_copied_workspace_that_still_runs_carries_nothing_and_is_named(
    shared: Workspace, model: str, server: str, monkeypatch: pytest.MonkeyPatch, has_database: bool
) -> None:
    for number in ("1", "2", "3"):
        register_served(shared, model, number)
    owner = open_registry(shared, model)
    owner.promote("1", None)
    copy = Workspace(shared.root.with_name("copy"))
    shutil.copytree(shared.root, copy.root)
    copied = open_registry(copy, model)
    if not has_database:
        for path in copy.state.glob(f"{database.FILE}*"):
            path.unlink()
        copied.look()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    copied.promote("3", "1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    owner.promote("2", "1")
    copied.look()
    assert registered(model).aliases["champion"] == "2"
    assert len(owner.journal()) == 2
    monkeypatch.setenv("LOOPLINE_HOME", str(copy.root))
    assert "a copy of the workspace runs, or its database was restored: end the copy" in said("doctor")
