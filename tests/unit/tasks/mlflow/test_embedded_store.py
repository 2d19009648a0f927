"""The workspace's own tracking store is made here; one elsewhere is not ours to make."""

from pathlib import Path

import pytest

from models.errors import StoreError
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.mlflow import embedded_store
from tests.running import mounted


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    for key in stores.environment(Workspace(tmp_path)):
        monkeypatch.delenv(key, raising=False)
    return Workspace(tmp_path)


def test_a_store_elsewhere_is_not_ours_to_make(clean: Workspace) -> None:
    embedded_store.initialise(clean, {"MLFLOW_TRACKING_URI": "http://127.0.0.1:1"})
    assert not (clean.state / "mlflow").exists()


@pytest.mark.usefixtures("migrated_databases")
def test_a_full_disk_is_told_as_one(clean: Workspace) -> None:
    folder = clean.state / "mlflow"
    folder.mkdir(parents=True)
    uri = stores.environment(clean)["MLFLOW_TRACKING_URI"]
    with (
        mounted(folder, "-t", "tmpfs", "-o", "size=100k", "tmpfs"),
        pytest.raises(StoreError, match="disk is full: free some space and run again"),
    ):
        embedded_store.initialise(clean, {"MLFLOW_TRACKING_URI": uri})
