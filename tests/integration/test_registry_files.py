"""The files of a version in a real MLflow, and every way to read what MLflow holds of it."""

import json

import pytest

from models.files import sha256
from models.serving.registry import FILES, RegisteredVersion
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow import registry_reader
from tasks.mlflow.client import client
from tasks.mlflow.delivery import experiment_id
from tasks.mlflow.lost_store import refuse_lost
from tasks.mlflow.model_cache import cached_version, with_verdict
from tasks.mlflow.registry_reader import RegisteredModel, aliased, files_at, numbered, registered
from tests.integration.conftest import each_registry
from tests.told_facts import verdict

pytestmark = pytest.mark.usefixtures("module_environment")


def log_files(workspace: Workspace, model: str, content: str) -> dict[str, str]:
    """A registered version with one file in it, as `tasks/steps/register.py` leaves it."""
    store = client()
    folder = workspace.root / "files"
    folder.mkdir()
    (folder / "model.onnx").write_text(content)
    (folder / "verdict.json").write_text(verdict().model_dump_json())
    experiment = experiment_id(store, workspace, model)
    logged = store.create_logged_model(experiment, name=model)
    store.log_model_artifacts(logged.model_id, str(folder))
    store.finalize_logged_model(logged.model_id, "READY")
    hashes = {"model.onnx": sha256(folder / "model.onnx")}
    run = store.create_run(experiment).info.run_id
    made = open_registry(workspace, model)
    made.create("k", f"models:/{logged.model_id}", run, logged.model_id, {FILES: json.dumps(hashes)}, "")
    made.promote("1", None)
    return hashes


@each_registry
def test_a_versions_files_are_brought_and_checked(both: Workspace, model: str) -> None:
    log_files(both, model, "graph")
    folder = cached_version(both, model).folder
    assert (folder / "model.onnx").read_text() == "graph"


def test_the_verdict_of_a_version_is_read_from_its_files(place: Workspace, model: str) -> None:
    log_files(place, model, "graph")
    champion = aliased(model)
    assert champion is not None
    assert with_verdict(model, champion).verdict == verdict()


def test_every_way_into_the_registry_gives_the_same(
    both: Workspace, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file and the server are read without MLflow, a database elsewhere through its client."""

    def views() -> list[object]:
        versions = [numbered(model, "1"), numbered(model, "2"), numbered(model, "x"), numbered(f"{model}-2", "1")]
        places = [files_at(model, "1"), files_at(model, "9")]
        return [registered(model), registered(f"{model}-2"), aliased(model), aliased(model, "none"), *versions, *places]

    log_files(both, model, "graph")
    run = client().create_run(experiment_id(client(), both, model)).info
    open_registry(both, model).create("key-2", f"{run.artifact_uri}/model", run.run_id, None, {}, "")
    client().delete_model_version(model, "2")
    seen = views()
    refuse_lost(both, model)
    monkeypatch.setattr(registry_reader, "_ask", lambda what, **query: registry_reader._through_mlflow(what, query))
    assert seen == views()
    assert isinstance(seen[4], RegisteredVersion)
    assert [seen[1], seen[3], *seen[5:8], seen[9]] == [RegisteredModel({}, {}), None, None, None, None, ""]
