"""Served models as real versions of a real MLflow registry: no training, a second instead of half a minute."""

from __future__ import annotations

import json
from pathlib import Path

from models.files import sha256, write_json
from models.serving.registry import FILES
from models.signing import TAG, signature
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow.client import client
from tasks.mlflow.delivery import experiment_id
from tasks.mlflow.model_cache import signing_key
from tests.served_models import write_served


def register_served(workspace: Workspace, model: str, number: str, serve: dict[str, object] | None = None) -> Path:
    """Register the next version of a model, which must get that number; gives the folder that its files lay in.

    Args:
        workspace: Whose registry.
        model: The registered model.
        number: Which one it will be.
        serve: The `serve` block of the spec that travels with it.
    """
    folder = workspace.root / "made" / model / number
    write_served(folder, "binary")
    write_json(folder / "spec.json", {"name": model, "serve": serve or {}})
    hashes = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    store, key = client(), signing_key()
    logged = store.create_logged_model(experiment_id(store, workspace, model), name=model)
    store.log_model_artifacts(logged.model_id, str(folder))
    store.finalize_logged_model(logged.model_id, "READY")
    run = store.create_run(experiment_id(store, workspace, model)).info.run_id
    tags = {FILES: json.dumps(hashes), **({TAG: signature(key, model, hashes)} if key else {})}
    source = f"models:/{logged.model_id}"
    stored = open_registry(workspace, model).create(f"key-{number}", source, run, logged.model_id, tags, "a model")
    assert stored.number == number
    return folder
