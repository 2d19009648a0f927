"""Who is champion, read again when the registry's file changed, and only then."""

import os
import time

import pytest

from models.errors import StoreError, UsageError
from tasks.host import stores
from tasks.mlflow import registry_reader
from tasks.release.registry_watcher import EMBEDDED_S, SERVER_S, RegistryWatcher
from tests.serving import register


@pytest.fixture
def reads(monkeypatch):
    """How often the registry was read."""
    found, read = [], registry_reader.aliased
    monkeypatch.setattr(registry_reader, "aliased", lambda model: found.append(model) or read(model))
    return found


def crowned(workspace, number):
    register(workspace, "tiny", number, {"n": number}, workspace.root, "champion")


def age(workspace):
    """As if the file had last changed a while ago."""
    path = stores.database_file(os.environ["MLFLOW_TRACKING_URI"])
    for file in path.parent.glob(f"{path.name}*"):
        os.utime(file, (time.time() - 60, time.time() - 60))


def test_a_registry_that_was_never_made_is_away(workspace):
    with pytest.raises(StoreError, match="no registry yet"):
        RegistryWatcher("tiny").champion()


def test_a_file_that_did_not_change_is_not_read_again(workspace, reads):
    crowned(workspace, "1")
    age(workspace)
    watcher = RegistryWatcher("tiny")
    assert [watcher.champion().number for _ in range(5)] == ["1"] * 5
    assert len(reads) == 1
    crowned(workspace, "2")
    assert [watcher.champion().number for _ in range(3)] == ["2"] * 3
    assert len(reads) == 4, "one that changed just now may change again within the same tick"


def test_a_registry_without_the_model_has_no_champion(workspace):
    crowned(workspace, "1")
    assert RegistryWatcher("other").champion() is None


def test_a_server_is_asked_more_rarely_than_a_file(workspace, monkeypatch):
    assert RegistryWatcher("tiny").pause_s == EMBEDDED_S
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert RegistryWatcher("tiny").pause_s == SERVER_S
    with pytest.raises(StoreError, match="cannot be reached"):
        RegistryWatcher("tiny").champion()


def test_a_database_that_only_mlflow_can_ask_is_refused_without_its_password(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://ada:secret@db/mlflow")
    with pytest.raises(UsageError, match="got a postgresql database") as told:
        RegistryWatcher("tiny")
    assert "secret" not in str(told.value)
