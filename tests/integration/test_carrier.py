"""What was moved in MLflow is heard, and what waits is carried there, in a real MLflow."""

import pytest

from models.serving.registry import MLFLOW
from models.serving.registry_comparison import MARK, OWNER
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow.client import client
from tasks.mlflow.registry import Registry
from tasks.mlflow.registry_reader import registered
from tasks.prefect.events import CHAMPION_MOVED
from tasks.state.workspace_id import workspace_id
from tests.registered import register_served


@pytest.fixture
def registry(tracked: Workspace) -> Registry:
    """Three versions, of which the second is the champion."""
    for number in ("1", "2", "3"):
        register_served(tracked, "tiny", number)
    made = open_registry(tracked, "tiny")
    made.promote("1", None)
    made.promote("2", "1")
    return made


def events(workspace: Workspace) -> list[str]:
    from sqlalchemy import select

    from tasks.host import database
    from tasks.host.tables import events as table

    with database.reading(workspace.state) as connection:
        rows = connection.scalars(select(table.c.content).order_by(table.c.number))
        return [row["text"] for row in rows if row["name"] == CHAMPION_MOVED]


def test_a_persons_move_in_mlflow_is_heard_once(tracked: Workspace, registry: Registry) -> None:
    client().set_registered_model_alias("tiny", "champion", "3")
    for _ in range(2):
        registry.look()
    assert [(move.by, move.before, move.after) for move in registry.journal()][2:] == [(MLFLOW, "2", "3")]
    assert registered("tiny").aliases["previous"] == "2"
    assert len(events(tracked)) == 3


def test_the_model_in_mlflow_says_whose_it_is_and_which_move_it_has(tracked: Workspace, registry: Registry) -> None:
    tags, newest = registered("tiny").tags, registry.journal()[-1]
    assert tags[OWNER] == workspace_id(tracked.state)
    assert tags[MARK] == f"2:{newest.id}"
