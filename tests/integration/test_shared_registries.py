"""Two workspaces share one registry: a model belongs to one, the other follows, is refused and heard, or adopts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.commands.plan import command as plan
from models.errors import GateRefused, UsageError
from models.serving.registry import MLFLOW
from models.serving.registry_comparison import JOURNAL, MARK, OWNER
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.loop.history import LoopRecord, last_loop, save_loop
from tasks.loop.lifecycle import open_loop
from tasks.mlflow.client import client
from tasks.mlflow.registry import Registry
from tasks.mlflow.registry_reader import registered
from tasks.state.champion_moves import champion_of
from tasks.state.registered_models import foreign_owner, projection_of
from tasks.state.workspace_id import workspace_id
from tests.conftest import MakeProject
from tests.registered import register_served
from tests.wide import wide


@pytest.fixture
def owner(tracked: Workspace) -> Registry:
    """The workspace that registered three versions, of which the second is the champion."""
    for number in ("1", "2", "3"):
        register_served(tracked, "tiny", number)
    registry = open_registry(tracked, "tiny", "ada@home")
    registry.promote("1", None)
    registry.promote("2", "1")
    return registry


@pytest.fixture
def elsewhere(tracked: Workspace, tmp_path: Path) -> Workspace:
    """Another workspace, by the same registry."""
    workspace = Workspace(tmp_path / "elsewhere")
    workspace.make()
    return workspace


def moves(registry: Registry) -> list[tuple[str, str, str | None, str | None]]:
    return [(move.action, move.by, move.before, move.after) for move in registry.journal()]


def test_a_workspace_follows_a_model_of_another_one_and_is_refused(owner: Registry, elsewhere: Workspace) -> None:
    follower, whose = open_registry(elsewhere, "tiny"), registered("tiny").tags[OWNER]
    follower.look()
    projection = projection_of(elsewhere.state, "tiny")
    assert (projection.number, projection.alias, projection.trouble) == (1, "2", ""), "nothing waits"
    assert champion_of(elsewhere.state, "tiny") is None, "MLflow's alias says which version serves here"
    assert moves(follower) == [("promote", MLFLOW, None, "2")]
    assert foreign_owner(elsewhere.state, "tiny") == whose
    for act in (lambda: follower.promote("3", "2"), follower.rollback):
        with pytest.raises(GateRefused, match=rf"belongs to another workspace, {whose}, .*`loopline adopt tiny "):
            act()
    owner.promote("3", "2")
    follower.look()
    follower.look()
    assert [row[3] for row in moves(follower)] == ["2", "3"]
    assert registered("tiny").aliases["champion"] == "3"
    assert len(owner.journal()) == 3


def test_the_owner_hears_a_move_that_another_workspace_makes_by_hand(owner: Registry, elsewhere: Workspace) -> None:
    client().set_registered_model_alias("tiny", "champion", "3")
    open_registry(elsewhere, "tiny").look()
    owner.look()
    assert moves(owner)[-1] == ("promote", MLFLOW, "2", "3")
    assert registered("tiny").tags[OWNER] == workspace_id(owner.carrier.workspace.state)


@pytest.mark.parametrize("follows", [wide(False), True])
def test_a_model_that_is_adopted_keeps_its_champion_and_its_moves(
    owner: Registry, elsewhere: Workspace, follows: bool
) -> None:
    adopter = open_registry(elsewhere, "tiny", "bob@away")
    if follows:
        adopter.look()
    move = adopter.adopt("the old machine is gone")
    assert (move.action, move.by, move.before, move.after) == ("adopt", "bob@away", "2", "2")
    assert moves(adopter)[-3:-1] == moves(owner)
    tags = registered("tiny").tags
    assert (tags[OWNER], tags[MARK]) == (workspace_id(elsewhere.state), f"{move.number}:{move.id}")
    assert {json.loads(text)["workspace"] for name, text in tags.items() if name.startswith(JOURNAL)} == {tags[OWNER]}
    adopter.promote("3", "2")
    assert adopter.rollback().after == "2"
    assert adopter.rollback().after == "1"
    with pytest.raises(GateRefused, match="belongs to this workspace already"):
        adopter.adopt("again")

    owner.look()
    assert moves(owner)[-1] == ("adopt", MLFLOW, "2", "1")
    assert f"workspace {tags[OWNER]} adopted the model" in owner.journal()[-1].reason
    with pytest.raises(GateRefused, match="belongs to another workspace"):
        owner.promote("3", "1")
    owner.adopt("back again")
    assert owner.promote("3", "1").before == "1"
    adopter.look()
    assert moves(adopter)[-1] == ("adopt", MLFLOW, "1", "3")


def test_a_model_without_an_owner_is_that_of_the_first_who_promotes(owner: Registry, elsewhere: Workspace) -> None:
    """An older Loopline wrote no tag; its journal names the loop that promoted."""
    for name in registered("tiny").tags:
        client().delete_registered_model_tag("tiny", name)
    older = {"number": 1, "at": 1.0, "by": "host:1", "action": "promote", "before": None, "after": "2"}
    client().set_registered_model_tag("tiny", f"{JOURNAL}000001", json.dumps({**older, "loop_id": "t-1"}))
    third = Workspace(elsewhere.root.with_name("third"))
    third.make()
    first, second = open_registry(elsewhere, "tiny"), open_registry(third, "tiny")
    save_loop(third.state / "projects" / "tiny", LoopRecord("t-1", "finished"))
    first.look()
    assert OWNER not in registered("tiny").tags, "its journal is not of this workspace, and a look claims nothing"
    assert champion_of(elsewhere.state, "tiny").number == "2"  # type: ignore[union-attr]
    assert foreign_owner(elsewhere.state, "tiny") == ""
    second.look()
    assert registered("tiny").tags[OWNER] == workspace_id(third.state)
    assert moves(second) == [("promote", "host:1", None, "2")]
    with pytest.raises(GateRefused, match="belongs to another workspace"):
        first.promote("3", "2")


def test_the_first_who_promotes_claims_a_model_that_nobody_moved(tracked: Workspace, elsewhere: Workspace) -> None:
    register_served(tracked, "tiny", "1")
    client().delete_registered_model_tag("tiny", OWNER)
    claimant = open_registry(elsewhere, "tiny")
    claimant.promote("1", None)
    assert registered("tiny").tags[OWNER] == workspace_id(elsewhere.state)
    with pytest.raises(GateRefused, match="belongs to another workspace"):
        open_registry(tracked, "tiny").promote("1", None)


@pytest.mark.wide  # in its own workspace: test_carrier.py
def test_a_restored_database_reads_newer_moves_back_and_its_epochs_go_on(owner: Registry, elsewhere: Workspace) -> None:
    state = owner.carrier.workspace.state
    (state / "state.db").replace(elsewhere.state / "state.db")
    copied = open_registry(elsewhere, "tiny")
    copied.promote("3", "2")
    assert [row[3] for row in moves(copied)] == ["1", "2", "3"]


def test_a_model_that_is_not_there_cannot_be_adopted(tracked: Workspace) -> None:
    with pytest.raises(UsageError, match="MLflow has no such model"):
        open_registry(tracked, "tiny").adopt("why")


def test_a_loop_of_a_model_that_another_workspace_owns_trains_nothing(
    owner: Registry, make_project: MakeProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project("tiny")
    client().set_registered_model_tag("tiny", OWNER, "other")
    with pytest.raises(GateRefused, match=r"to another workspace, other, .*`loopline adopt tiny "), open_loop(project):
        pass
    assert last_loop(project.state("tiny")) is None
    plan.main(["tiny"], standalone_mode=False)
    assert "a run would be refused: tiny: its registered model belongs to another" in capsys.readouterr().err
