"""Files of a version that MLflow itself downloads are those that were registered, or refused."""

from pathlib import Path

import pytest

from models.errors import StoreError
from tasks.host.workspace import Workspace
from tasks.mlflow.model_cache import cached_version, fetch
from tests.integration.test_registry_files import log_files


def test_mlflow_downloads_what_was_registered(tracked: Workspace, tmp_path: Path) -> None:
    log_files(tracked, "m", "graph")
    fetch(tracked, "m", "1", tmp_path / "here")
    assert (tmp_path / "here" / "model.onnx").read_text() == "graph"


@pytest.mark.parametrize("spoil", ["changed", "missing"])
def test_a_file_that_is_not_the_one_registered_is_refused(tracked: Workspace, tmp_path: Path, spoil: str) -> None:
    log_files(tracked, "m", "graph")
    (stored,) = (tracked.state / "mlflow" / "artifacts").rglob("model.onnx")
    if spoil == "changed":
        stored.write_text("GRAPH")
    else:
        stored.rename(stored.with_name("other"))
    with pytest.raises(StoreError, match=rf"model\.onnx is {spoil}.*loopline rollback"):
        fetch(tracked, "m", "1", tmp_path / "here")
    with pytest.raises(StoreError, match=rf"model\.onnx is {spoil}.*loopline rollback"):
        cached_version(tracked, "m")
