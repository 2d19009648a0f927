"""A promotion that is paused at each of its acts: one machine decides each move, and MLflow follows the newest."""

from __future__ import annotations

import pytest

from models.errors import GateRefused
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow.client import client
from tasks.state.champion_moves import moves_of
from tests.postgres import is_installed
from tests.stored_events import stored_events
from tests.time import acts
from tests.time.acts import PROJECT
from tests.time.machines import Elsewhere
from tests.time.points import CARRIER, CARRY, MOVE, Point
from tests.time.test_loop import wait_until_free
from tests.wide import wide

pytestmark = [
    pytest.mark.fault,
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]


@pytest.fixture
def registered(tracked: Workspace) -> Workspace:
    """A workspace with three versions, the first of them the champion."""
    register_three(tracked)
    return tracked


def register_three(workspace: Workspace) -> None:
    """Register three versions, and promote the first."""
    store = client()
    run = store.create_run(store.create_experiment(PROJECT)).info.run_id
    registry = open_registry(workspace, PROJECT)
    for key in "123":
        registry.create(key, f"file://{workspace.root}/{key}", run, None, {}, "")
    registry.promote("1", None, reason="the first")


def changes(workspace: Workspace) -> list[tuple[str | None, str | None]]:
    """The champion before and after each move that changed it, oldest first.

    A further row says that MLflow was put right after a paused process wrote to it.
    """
    moves = reversed(moves_of(workspace.state, PROJECT))
    return [(move.before, move.after) for move in moves if move.before != move.after]


@pytest.mark.parametrize("point", [wide(CARRIER), MOVE], ids=["before it looks at MLflow", "before its transaction"])
def test_a_paused_promotion_is_refused_once_another_machine_has_promoted(
    registered: Workspace, elsewhere: Elsewhere, point: Point
) -> None:
    arguments = {"version": "2", "expected": "1"}
    with elsewhere("paused").process("promote_version", point, arguments=arguments) as paused:
        paused.wait_at(point)
        wait_until_free(registered, f"mlflow:{PROJECT}")
        acts.promote_version(registered, "3", "1")
        refusal = paused.ended()[-1]
    assert refusal.startswith(f"refused: GateRefused: {PROJECT}: the champion is version 3"), refusal
    assert_followed(registered, [(None, "1"), ("1", "3")])


def test_a_paused_carrier_leaves_no_older_champion_in_mlflow(registered: Workspace, elsewhere: Elsewhere) -> None:
    """Its move is decided; it sets the alias late, after another machine has promoted, and puts it right."""
    arguments = {"version": "2", "expected": "1"}
    with elsewhere("paused").process("promote_version", CARRY, arguments=arguments) as paused:
        paused.wait_at(CARRY)
        wait_until_free(registered, f"mlflow:{PROJECT}")
        with pytest.raises(GateRefused, match="the champion is version 2"):
            acts.promote_version(registered, "3", "1")
        acts.promote_version(registered, "3", "2")
        assert paused.ended()[-1] == "done", paused.lines
    assert_followed(registered, [(None, "1"), ("1", "2"), ("2", "3")])


def assert_followed(workspace: Workspace, moves: list[tuple[str | None, str | None]]) -> None:
    """These moves and no other are on record, each with one event, and MLflow shows the last one, also after a look."""
    for _ in range(2):
        assert changes(workspace) == moves
        assert str(client().get_model_version_by_alias(PROJECT, "champion").version) == moves[-1][1]
        open_registry(workspace, PROJECT).look()
    events = [event for event in stored_events(workspace) if event["name"] == "loopline.champion.moved"]
    assert [(event["payload"]["before"], event["payload"]["after"]) for event in events] == moves
