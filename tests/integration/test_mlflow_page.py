"""MLflow's server as the platform runs it: one process, which answers to this machine's names alone."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from mlflow.tracking import MlflowClient

from tasks.host import server_access
from tasks.host.workspace import Workspace
from tasks.mlflow import artifact_files
from tasks.mlflow.registry_reader import authorization
from tests.mlflow_serving import serving


def test_one_process_serves_the_page_and_artifacts_and_refuses_strangers(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(workspace) as (url, process):
        assert not psutil.Process(process.pid).children(), "it began another process to serve"
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(url, timeout=60)
        refused.value.close()
        for name, value in server_access.credentials(workspace, {}).items():
            monkeypatch.setenv(name, value)
        with urllib.request.urlopen(urllib.request.Request(url, headers=authorization()), timeout=60) as page:
            assert page.headers["X-Frame-Options"] == "SAMEORIGIN"
        foreign = urllib.request.Request(
            f"{url}/ajax-api/2.0/mlflow/experiments/search", headers={"Host": "evil.example", **authorization()}
        )
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(foreign, timeout=60)
        refused.value.close()
        client = MlflowClient(url)
        run = client.create_run(client.create_experiment("kept"))
        client.log_text(run.info.run_id, "carried over HTTP", "note.txt")
        assert Path(client.download_artifacts(run.info.run_id, "note.txt", str(tmp_path))).read_text()
        second = client.create_run(run.info.experiment_id)
        client.log_text(second.info.run_id, "to be removed", "gone.txt")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        for _ in range(2):  # as after a kill
            artifact_files.remove(second.info.artifact_uri)
    assert process.returncode is not None
    assert next((workspace.state / "mlflow" / "artifacts").rglob("note.txt")).read_text() == "carried over HTTP"
    assert not list((workspace.state / "mlflow" / "artifacts").rglob("gone.txt"))
