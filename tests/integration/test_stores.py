"""The tracking store is made once, however many come first."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.mlflow import embedded_store
from tests.conftest import Processes
from tests.wide import wide

pytestmark = pytest.mark.usefixtures("migrated_databases")

CODE = """
from pathlib import Path
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.mlflow import embedded_store
workspace = Workspace(Path({root!r}))
workspace.make()
stores.configure(workspace)
embedded_store.initialise(workspace)
from tasks.mlflow.client import client
from tasks.mlflow.delivery import experiment_id
print(experiment_id(client(), workspace, "tiny"))
"""


def test_three_processes_at_once_make_one_store(tmp_path: Path, workspace: Workspace, at_once: Processes) -> None:
    done = at_once(*[CODE.format(root=str(workspace.root))] * 3)
    assert [one.returncode for one in done] == [0] * 3, "\n".join(one.stderr[-500:] for one in done)
    assert len({one.stdout for one in done}) == 1, "all see the same experiment"
    uri = stores.environment(workspace)["MLFLOW_TRACKING_URI"]
    with closing(sqlite3.connect(stores.database_file(uri))) as connection:
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
        assert connection.execute("select count(*) from experiments where name = 'tiny'").fetchone() == (1,)


@pytest.mark.wide
def test_a_store_that_was_deleted_is_made_again(workspace: Workspace) -> None:
    embedded_store.initialise(workspace)
    database = stores.database_file(stores.environment(workspace)["MLFLOW_TRACKING_URI"])
    for path in database.parent.glob("mlflow.db*"):
        path.unlink()
    embedded_store.initialise(workspace)
    assert database.exists()


def test_a_workspace_that_was_moved_finds_its_artifacts(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.mlflow.client import client
    from tasks.mlflow.delivery import experiment_id

    embedded_store.initialise(workspace)
    run = client().create_run(experiment_id(client(), workspace, "tiny")).info
    assert run.artifact_uri.startswith(stores.artifact_root(workspace).as_uri())
    moved = Workspace(workspace.root.with_name("my work #1"))
    shutil.copytree(workspace.root, moved.root)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    for _ in range(2):
        stores.configure(moved)
    with closing(sqlite3.connect(moved.state / "mlflow" / "mlflow.db")) as connection:
        ((uri,),) = connection.execute("select artifact_uri from runs")
        places = connection.execute("select artifact_location from experiments where name = 'tiny'").fetchall()
    assert uri == run.artifact_uri.replace(workspace.root.as_uri(), moved.root.as_uri())
    assert places == [(f"{stores.artifact_root(moved).as_uri()}/tiny",)]


@pytest.mark.parametrize("killed_after", [wide("all"), "one table"])
def test_a_store_whose_making_was_killed_is_made_whole(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, killed_after: str
) -> None:
    real = embedded_store._migrate
    shutil.rmtree(workspace.state / "mlflow", ignore_errors=True)

    def die(path: Path) -> None:
        if killed_after == "all":
            real(path)
        else:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("create table registered_models (a text)")  # the first of many
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(embedded_store, "_migrate", die)
        with pytest.raises(KeyboardInterrupt):
            embedded_store.initialise(workspace)
    embedded_store.initialise(workspace)
    with closing(
        sqlite3.connect(stores.database_file(stores.environment(workspace)["MLFLOW_TRACKING_URI"]))
    ) as connection:
        assert connection.execute("select count(*) from registered_models").fetchone() == (0,)
