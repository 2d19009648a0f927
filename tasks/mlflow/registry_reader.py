"""Reads aliases and tags of the registry without importing MLflow: from the local file, or over REST.

Importing MLflow takes more than a second; a loop with nothing to do, and every plan, must avoid this cost.
"""

from __future__ import annotations

import json
import os
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from models.errors import StoreError
from tasks.host import stores
from tasks.host.store_addresses import without_password
from tasks.host.workspace import Workspace
from tasks.state.step_records import StepRecords

_DELETED = "Deleted_Internal"
"""The stage that MLflow gives a deleted version. Source: mlflow.entities.model_registry.model_version_stages."""
ALIASES = ("champion", "challenger", "previous")


class RegisteredVersion(BaseModel):
    """A registered version: its number and tags."""

    number: str
    tags: dict[str, str]

    @property
    def weights(self) -> str:
        """SHA-256 of its weights."""
        return self.tags.get("loopline.weights_sha256", "")

    @property
    def key(self) -> str:
        """The key of the work that it was registered for."""
        return self.tags.get("loopline.key", "")

    @property
    def identity(self) -> str:
        """Number and weights, by which a verdict names the version that it compared with."""
        return f"{self.number}:{self.weights[:16]}"


def aliased(model: str, alias: str = "champion") -> RegisteredVersion | None:
    """Return the version that `alias` points at, or None if there is no such model or alias.

    Raises:
        StoreError: The registry is unavailable.
    """
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if stores.is_embedded(uri):
        return _from_file(stores.database_file(uri), model, alias)
    if uri.startswith(("http://", "https://")):
        return _over_rest(uri, model, alias)
    return _through_mlflow("get_model_version_by_alias", model, alias)


def numbered(model: str, number: str) -> RegisteredVersion | None:
    """Return the version with this number, or None if there is none.

    Raises:
        StoreError: The registry is unavailable.
    """
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if stores.is_embedded(uri):
        return _numbered_in_file(stores.database_file(uri), model, number)
    if uri.startswith(("http://", "https://")):
        answer = _get(uri, "model-versions/get", name=model, version=number)
        return None if answer is None else _version(uri, answer)
    return _through_mlflow("get_model_version", model, number)


def files_at(model: str, number: str) -> str | None:
    """Return the MLflow URI of a version's files; None if there is no such version, or if only MLflow can tell.

    Raises:
        StoreError: The registry is unavailable.
    """
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if stores.is_embedded(uri):
        sql = "select storage_location from model_versions where name = ? and version = ?"
        rows = _rows(stores.database_file(uri), sql, model, number)
        return str(rows[0][0]) if rows and rows[0][0] else None
    if uri.startswith(("http://", "https://")):
        answer = _get(uri, "model-versions/get-download-uri", name=model, version=number)
        return str(answer["artifact_uri"]) if answer and answer.get("artifact_uri") else None
    return None


def refuse_lost(workspace: Workspace, model: str) -> None:
    """Refuse a store that has no data of a project although the project's records name a version in that store.

    Such a store was emptied or lost: a loop that went on would register and promote version 1 again. A person who only
    deletes a version or the registered model in MLflow leaves the project's experiment in the store.

    Raises:
        StoreError: The store was lost, or the file of the embedded store cannot be read.
    """
    records = StepRecords(workspace.state / "projects" / model, workspace.root)
    made = records.latest("register")
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if made is None or made.result.get("store") != stores.name_of(workspace, uri):
        return
    try:
        if _has_experiment(uri, model) or numbered(model, str(made.result["version"])):
            return
    except StoreError:
        if stores.is_embedded(uri):
            raise
        return  # the store is away: a loop continues without it as far as possible
    where = stores.database_file(uri) if stores.is_embedded(uri) else without_password(uri)
    version = made.result["version"]
    anew = f"delete from step_records where project = '{model}' and step = 'register'"  # noqa: S608 - for a person
    raise StoreError(
        f"{where}: holds nothing of {model}, whose version {version} was registered there: the store was lost or "
        f"emptied. Put it back from a copy; or, to begin anew with version 1, remove its record from the state "
        f"database: {anew}"
    )


def _has_experiment(uri: str, name: str) -> bool:
    if stores.is_embedded(uri):
        return bool(_rows(stores.database_file(uri), "select 1 from experiments where name = ?", name))
    if uri.startswith(("http://", "https://")):
        return _get(uri, "experiments/get-by-name", experiment_name=name) is not None
    from tasks.mlflow.delivery import client, reaching_store

    with reaching_store():
        return client().get_experiment_by_name(name) is not None


def _from_file(path: Path, model: str, alias: str) -> RegisteredVersion | None:
    rows = _rows(path, "select version from registered_model_aliases where name = ? and alias = ?", model, alias)
    return _tagged(path, model, str(rows[0][0])) if rows else None


def _numbered_in_file(path: Path, model: str, number: str) -> RegisteredVersion | None:
    sql = "select version from model_versions where name = ? and version = ? and current_stage != ?"
    rows = _rows(path, sql, model, number, _DELETED)
    return _tagged(path, model, str(rows[0][0])) if rows else None


def _tagged(path: Path, model: str, number: str) -> RegisteredVersion:
    sql = "select key, value from model_version_tags where name = ? and version = ?"
    return RegisteredVersion(number=number, tags=dict(_rows(path, sql, model, number)))


def _rows(path: Path, sql: str, *values: str) -> list[Any]:
    if not path.exists():
        return []
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
            return connection.execute(sql, values).fetchall()
    except sqlite3.DatabaseError as error:
        if "no such table" in str(error):
            return []
        cure = "" if isinstance(error, sqlite3.OperationalError) else ": put the file back from a copy"
        raise StoreError(f"{path}: the registry cannot be read: {error}{cure}") from error


def _over_rest(uri: str, model: str, alias: str) -> RegisteredVersion | None:
    answer = _get(uri, "registered-models/alias", name=model, alias=alias)
    return None if answer is None else _version(uri, answer)


def _get(uri: str, what: str, **query: str) -> dict[str, Any] | None:
    """Return the registry's REST answer, or None if the registry does not know the object."""
    request = urllib.request.Request(  # noqa: S310 - the address the user configured
        f"{uri.rstrip('/')}/api/2.0/mlflow/{what}?{urllib.parse.urlencode(query)}", headers=authorization()
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        if error.code in (400, 404):
            return None
        raise StoreError(f"the registry at {uri} answered {error.code}") from error
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise StoreError(f"the registry at {uri} cannot be reached: {error}") from error


def _version(uri: str, answer: dict[str, Any]) -> RegisteredVersion:
    fields = answer.get("model_version", {})
    if "version" not in fields:
        raise StoreError(f"the registry at {uri} cannot be reached: what answers there is no registry")
    return RegisteredVersion(number=str(fields["version"]), tags=_tags(fields.get("tags", [])))


def _through_mlflow(
    what: Literal["get_model_version", "get_model_version_by_alias"], *which: str
) -> RegisteredVersion | None:
    from mlflow.exceptions import MlflowException

    from tasks.mlflow.delivery import client, reaching_store

    with reaching_store():
        try:
            entity = getattr(client(), what)(*which)
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
            raise
    return RegisteredVersion(number=str(entity.version), tags=dict(entity.tags))


def _tags(pairs: list[dict[str, Any]]) -> dict[str, str]:
    return {pair["key"]: pair["value"] for pair in pairs}


def authorization() -> dict[str, str]:
    """Return the authorization header for a REST registry, from the same environment variables as MLflow."""
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    if token:
        return {"Authorization": f"Bearer {token}"}
    user, password = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD")
    if user and password:
        import base64

        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
    return {}
