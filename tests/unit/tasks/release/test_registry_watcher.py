"""What serves, by the newest move or by MLflow's alias; a file is read again when it changed, and only then."""

import os
import time

import pytest

from models.errors import StoreError, UsageError
from models.serving.registry_comparison import Projection
from tasks.host import database, stores
from tasks.release.registry_watcher import FILE_S, SERVER_S, RegistryWatcher
from tasks.state import champion_moves, registered_models
from tasks.state.workspace_id import workspace_id
from tests.alias_server import alias_server
from tests.serving import register

ONLY_MLFLOW = "postgresql://ada:secret@db/mlflow"


@pytest.fixture
def mlflow(monkeypatch):
    """MLflow's server."""
    with alias_server() as (registry, url):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        yield registry


@pytest.fixture
def watcher(workspace):
    return RegistryWatcher(workspace.state, "tiny")


def count_reads(monkeypatch, module, name):
    """How often a store is read from now on."""
    found, read = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: found.append(given) or read(*given))
    return found


def crown(workspace, number, put=register):
    put(workspace, "tiny", number, {"n": number}, workspace.root, "champion")


def age(workspace):
    """As if the files had last changed a while ago."""
    for file in workspace.state.glob("*.db*"):
        os.utime(file, (time.time() - 60, time.time() - 60))


def test_a_registry_that_was_never_made_is_away(watcher):
    with pytest.raises(StoreError, match="no registry yet"):
        watcher.champion()


def test_a_file_that_did_not_change_is_not_read_again(workspace, watcher, monkeypatch):
    crown(workspace, "1")
    age(workspace)
    reads = count_reads(monkeypatch, champion_moves, "serving_state")
    assert [watcher.champion().number for _ in range(5)] == ["1"] * 5
    assert len(reads) == 1
    crown(workspace, "2")
    assert [watcher.champion().number for _ in range(3)] == ["2"] * 3
    assert len(reads) == 4, "one that changed just now may change again within the same tick"


def test_a_registry_without_the_model_has_no_champion(workspace, mlflow):
    crown(workspace, "1", mlflow.register)
    mlflow.aliases.clear()
    assert RegistryWatcher(workspace.state, "other").champion() is None


def test_what_only_mlflow_holds_must_be_read_from_it_first(workspace, watcher):
    """The rows of its moves are not there yet; its own file is for MLflow alone to read."""
    with database.writing(workspace.state) as connection:
        registered_models.save(connection, "tiny", Projection())
    with pytest.raises(StoreError, match="its versions must be read from MLflow first"):
        watcher.champion()


def test_a_move_wins_over_the_alias_and_names_where_the_files_are(workspace, mlflow, watcher):
    crown(workspace, "1")
    register(workspace, "tiny", "3", {}, workspace.root / "third", "challenger")
    crown(workspace, "2", mlflow.register)
    champion = watcher.champion()
    assert (champion.number, champion.tags["n"], champion.place) == ("1", "1", str(workspace.root))
    assert (watcher.challenger(), watcher.version("3").place) == ("3", str(workspace.root / "third"))
    assert watcher.version("2") is None, "only MLflow has it"
    assert mlflow.requests == []


def test_a_champion_that_was_removed_is_none_whatever_the_alias_says(workspace, watcher):
    crown(workspace, "1")
    with database.writing(workspace.state) as connection:
        champion_moves.record(connection, "tiny", 1, action="removed", before="1", after=None)
    assert watcher.champion() is None


def test_the_model_of_another_workspace_is_followed_by_its_alias(workspace, mlflow, watcher, monkeypatch, caplog):
    crown(workspace, "1")
    crown(workspace, "2", mlflow.register)
    for owner, champion in ((workspace_id(workspace.state), "1"), ("another", "2")):
        with database.writing(workspace.state) as connection:
            registered_models.save(connection, "tiny", Projection(owner))
        assert [watcher.champion().number for _ in range(2)] == [champion] * 2
    assert caplog.messages == ["tiny: its registered model belongs to another workspace, whose champion is served"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", ONLY_MLFLOW)
    with pytest.raises(StoreError, match="another workspace owns the registered model: set MLFLOW_TRACKING_URI"):
        RegistryWatcher(workspace.state, "tiny").champion()


def test_a_server_is_asked_more_rarely_than_a_file(workspace, watcher, monkeypatch):
    assert watcher.pause_s == FILE_S
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    elsewhere = RegistryWatcher(workspace.state, "tiny")
    assert elsewhere.pause_s == SERVER_S
    with pytest.raises(StoreError, match="cannot be reached"):
        elsewhere.champion()
    crown(workspace, "1")
    assert elsewhere.champion().number == "1", "the first move of this workspace"
    assert elsewhere.pause_s == FILE_S


def test_a_database_that_only_mlflow_can_ask_is_refused_without_its_password(workspace, monkeypatch):
    assert stores.is_embedded(os.environ["MLFLOW_TRACKING_URI"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", ONLY_MLFLOW)
    with pytest.raises(UsageError, match=r"got a postgresql database.*set LOOPLINE_STATE_URL.*or MLFLOW_TRAC") as told:
        RegistryWatcher(workspace.state, "tiny")
    assert "secret" not in str(told.value)
    crown(workspace, "1")
    assert RegistryWatcher(workspace.state, "tiny").champion().number == "1", "its own moves are enough"
