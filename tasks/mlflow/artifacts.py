"""Files of registered versions: downloaded, and checked against the hashes that were registered with them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from models.errors import StoreError
from models.files import sha256
from tasks.host.workspace import Workspace
from tasks.mlflow import embedded_store, registry_reader
from tasks.mlflow.delivery import client, reaching_store

FILES = "loopline.files"
SERVED = "mlflow-artifacts:/"
TIMEOUT_S = 30.0


def signing_key() -> str | None:
    """Return the key that signs and verifies versions, `LOOPLINE_SIGNING_KEY`; None if it is not set."""
    return os.environ.get("LOOPLINE_SIGNING_KEY") or None


def download_version(workspace: Workspace, model: str, version: str, to: Path) -> Path:
    """Download a version's files (`model.onnx`, `preparation.json`, weights), verify them, and return their folder.

    Raises:
        StoreError: The files cannot be downloaded, or a file is not the one that was registered.
    """
    import mlflow

    embedded_store.initialise(workspace)
    with reaching_store():
        model_version = client().get_model_version(model, version)
        folder = Path(mlflow.artifacts.download_artifacts(f"models:/{model}/{version}", dst_path=str(to)))
    refuse_damage(model, version, folder, json.loads(dict(model_version.tags).get(FILES, "{}")))
    return folder


def bring_files(model: str, version: str, names: Iterable[str], to: Path) -> bool:
    """Copy files of a version into `to` without importing MLflow, from this machine or from an MLflow server.

    Does not check whether the files are those that were registered.

    Returns:
        False if the files are in a store of another kind: `download_version` can read any kind.

    Raises:
        StoreError: The files cannot be read now.
    """
    place = registry_reader.files_at(model, version)
    wanted = [_inside(to, name) for name in names]
    try:
        if place is not None and place.startswith(SERVED):
            for name in wanted:
                _download(_address(place, name), to / name)
            return True
        if place is not None and place.startswith(("file://", "/")):
            folder = Path(urllib.parse.unquote(urllib.parse.urlsplit(place).path))
            for name in wanted:
                with contextlib.suppress(FileNotFoundError):  # the check of the hashes reports it as missing
                    shutil.copyfile(folder / name, to / name)
            return True
    except (urllib.error.URLError, OSError) as error:
        raise StoreError(f"{model} version {version}: its files cannot be had from {place}: {error}") from error
    return False


def _inside(folder: Path, name: str) -> str:
    """Check that a file name from the registry stays inside the folder, and create its parent folder there."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise StoreError(f"got a file called {name!r} in {FILES}, expected one inside the version")
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    return path.as_posix()


def _address(place: str, name: str) -> str:
    """Return a file's address at the registry's server, or at the server in `place`. Source: MLflow's REST API."""
    parts = urllib.parse.urlsplit(place)
    server = f"http://{parts.netloc}" if parts.netloc else os.environ["MLFLOW_TRACKING_URI"].rstrip("/")
    path = urllib.parse.quote(f"{parts.path.strip('/')}/{name}")
    return f"{server}/api/2.0/mlflow-artifacts/artifacts/{path}"


def _download(address: str, to: Path) -> None:
    request = urllib.request.Request(address, headers=registry_reader.authorization())  # noqa: S310 - the user's own
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer, to.open("wb") as file:  # noqa: S310
            shutil.copyfileobj(answer, file)
    except urllib.error.HTTPError as error:
        if error.code != 404:  # the check of the hashes reports it as missing
            raise


def refuse_damage(model: str, version: str, folder: Path, hashes: Mapping[str, str]) -> None:
    """Check that files from the store are those that were registered.

    Raises:
        StoreError: A file is changed or missing.
    """
    for name, got in damage(folder, hashes):
        raise StoreError(
            f"{model} version {version}: {name} is {got} in the store: it is not what was registered; "
            "restore the artifacts, or roll back with `loopline rollback`"
        )


def damage(folder: Path, hashes: Mapping[str, str]) -> Iterator[tuple[str, Literal["changed", "missing"]]]:
    """Yield the files of a version that are not what was registered, with the kind of damage."""
    for name, digest in hashes.items():
        path = folder / name
        if not path.is_file():
            yield name, "missing"
        elif sha256(path) != digest:
            yield name, "changed"
