"""Reads the registry: SQL on the embedded store's file, MLflow's REST API on a server, MLflow's client elsewhere.

Importing MLflow takes more than a second; a loop with nothing to do, every plan and every status avoid this cost.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

from models.errors import StoreError
from models.project_spec.references import ALIASES
from models.serving.registry import ChampionMove, RegisteredVersion
from models.serving.registry_comparison import OWNER
from tasks.host import database, http_client, sqlite_files, stores
from tasks.host.http_client import is_same_server
from tasks.host.store_addresses import without_password
from tasks.host.workspace import Workspace
from tasks.mlflow.client import client, reaching_store, refusal
from tasks.state import registered_models
from tasks.state.champion_moves import named_version, named_versions
from tasks.state.step_records import StepRecords
from tasks.state.workspace_id import own_id

_thread = threading.local()
_NOT_THERE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""MLflow's error codes for a model, a version or an alias that does not exist."""
_TAGS = "(select json_group_array(json_object('key', key, 'value', value)) from"
_VERSION = f"""select json_object('model_version', json_object('version', version, 'tags',
    {_TAGS} model_version_tags as tag where tag.name = found.name and tag.version = found.version))) from"""
_SQL = {
    "registered-models/alias": f"{_VERSION} registered_model_aliases as found where name = :name and alias = :alias",
    "model-versions/get": f"""{_VERSION} model_versions as found
        where name = :name and version = :version and current_stage != 'Deleted_Internal'""",
    "model-versions/get-download-uri": """select json_object('artifact_uri', storage_location) from model_versions
        where name = :name and version = :version""",
    "registered-models/get": f"""select json_object('registered_model', json_object(
        'aliases', (select json_group_array(json_object('alias', alias, 'version', version))
            from registered_model_aliases where name = :name),
        'tags', {_TAGS} registered_model_tags where workspace = 'default' and name = :name)))""",  # noqa: S608 - constants
    "experiments/get-by-name": "select json_object('experiment', name) from experiments where name = :experiment_name",
}
"""The endpoints of MLflow's REST API that Loopline reads, as SQL on MLflow's tables that gives the same JSON.

`default` is MLflow's only workspace; `Deleted_Internal` is the stage of a deleted version, and
`model_versions.storage_location` the place of its files. Source: mlflow.store.model_registry.dbmodels.models.
"""
_CLIENT = {
    "registered-models/alias": ("get_model_version_by_alias", "model_version"),
    "model-versions/get": ("get_model_version", "model_version"),
    "model-versions/get-download-uri": ("get_model_version_download_uri", "artifact_uri"),
    "registered-models/get": ("get_registered_model", "registered_model"),
    "experiments/get-by-name": ("get_experiment_by_name", "experiment"),
}
"""The same endpoints as methods of MLflow's client, and the field of the answer."""


class RegisteredModel(NamedTuple):
    """A registered model: the version that each alias points at, and the model's tags."""

    aliases: dict[str, str]
    tags: dict[str, str]


@dataclass
class _Reading:
    """What the reads of a block share: connections to embedded stores, and the first error of a server's registry."""

    end: contextlib.ExitStack
    connections: dict[Path, sqlite3.Connection] = field(default_factory=dict)
    away: StoreError | None = None


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Read the registry once within the block, in this thread.

    The embedded store is read by one connection, because opening one takes 1 ms. A server that is away is asked once:
    each further read raises the same error at once.
    """
    with contextlib.ExitStack() as stack:
        _thread.reading = _Reading(stack)
        try:
            yield
        finally:
            del _thread.reading


def named(root: Path, model: str, name: str = "champion") -> RegisteredVersion | None:
    """Return the version that an alias or a number names, by the rows of the state database; None: there is none.

    A workspace that does not own the model, or never registered it, asks MLflow's server.

    Args:
        root: The workspace's state folder, `.loopline`.
        model: The registered model, which has the project's name.
        name: `champion`, `challenger`, `previous` or a number.

    Raises:
        StoreError: The database, or the registry of a workspace without rows, is away.
    """
    with database.reading(root) as connection:
        version = named_version(root, model, name)
        if version or not registered_models.is_followed(connection, model):
            return version
    if not _is_server(os.environ["MLFLOW_TRACKING_URI"]):
        return None
    return aliased(model, name) if name in ALIASES else numbered(model, name)


def all_named(
    root: Path, moves: Mapping[str, Sequence[ChampionMove]], numbers: Mapping[str, Collection[str]]
) -> dict[str, dict[str, RegisteredVersion]]:
    """Return versions of several projects as `named` does, in a few queries; what MLflow must be asked is left out."""
    versions = named_versions(root, moves, numbers)
    if not _is_server(os.environ["MLFLOW_TRACKING_URI"]):
        return versions
    known = registered_models.projections(root)
    return {project: of_project for project, of_project in versions.items() if project in known}


def registered(model: str) -> RegisteredModel:
    """Return the aliases and tags of a model; both are empty if it is not registered.

    Raises:
        StoreError: The registry is unavailable.
    """
    fields = _field("registered_model", _ask("registered-models/get", name=model))
    aliases = {pair["alias"]: str(pair["version"]) for pair in fields.get("aliases", [])}
    return RegisteredModel(aliases, _tags(fields))


def check() -> None:
    """Ask the registry for anything, which every account may do.

    Raises:
        StoreError: The registry is unavailable, or does not know the account.
    """
    if _is_server(os.environ["MLFLOW_TRACKING_URI"]):
        rest("registered-models/search", {"max_results": 1})
    else:
        aliased("")


def aliased(model: str, alias: str = "champion") -> RegisteredVersion | None:
    """Return the version that `alias` points at, or None if there is no such model or alias.

    Raises:
        StoreError: The registry is unavailable.
    """
    return _version(_ask("registered-models/alias", name=model, alias=alias))


def numbered(model: str, number: str) -> RegisteredVersion | None:
    """Return the version with this number, or None if there is none.

    Raises:
        StoreError: The registry is unavailable.
    """
    return _version(_ask("model-versions/get", name=model, version=number))


def foreign_owner(root: Path, model: str) -> str:
    """Return the id of the other workspace to which a model belongs; empty if none is known.

    The rows say it. A registry that several workspaces may share is asked as long as nobody has looked at it.

    Args:
        root: The workspace's state folder, `.loopline`.
        model: The registered model, which has the project's name.
    """
    with database.reading(root) as connection:
        projection, own = registered_models.read(connection, model), own_id(connection)
    owner = projection.owner
    if projection.looked is None and not stores.is_embedded(os.environ["MLFLOW_TRACKING_URI"]):
        with contextlib.suppress(StoreError):  # it is away: a loop continues without it as far as possible
            owner = registered(model).tags.get(OWNER, "")
    return "" if owner == own else owner


def files_at(model: str, number: str) -> str:
    """Return the URI of a version's files in MLflow's artifact store; empty if there is no such version.

    Raises:
        StoreError: The registry is unavailable.
    """
    answer = _ask("model-versions/get-download-uri", name=model, version=number) or {}
    return str(answer.get("artifact_uri") or "")


def refuse_lost(workspace: Workspace, model: str, records: StepRecords | None = None) -> None:
    """Refuse a store that has no data of a project although the project's records name a version in that store.

    Such a store was emptied or lost: a loop that went on would register and promote version 1 again. A person who only
    deletes a version or the registered model in MLflow leaves the project's experiment in the store.

    Args:
        workspace: The workspace.
        model: The registered model, which has the project's name.
        records: The project's records, if they are at hand.

    Raises:
        StoreError: The store was lost, or the file of the embedded store cannot be read.
    """
    records = records or StepRecords(workspace.state / "projects" / model, workspace.root)
    record = records.latest("register")
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if record is None or record.result.get("store") != stores.name_of(workspace, uri):
        return
    try:
        if _ask("experiments/get-by-name", experiment_name=model) or numbered(model, str(record.result["version"])):
            return
    except StoreError:
        if stores.is_embedded(uri):
            raise
        return  # the store is away: a loop continues without it as far as possible
    where = stores.database_file(uri) if stores.is_embedded(uri) else without_password(uri)
    version = record.result["version"]
    cure = f"delete from step_records where project = '{model}' and step = 'register'"  # noqa: S608 - for a person
    raise StoreError(
        f"{where}: holds nothing of {model}, whose version {version} was registered there: the store was lost or "
        f"emptied. Put it back from a copy; or, to begin anew with version 1, remove its record from the state "
        f"database: {cure}"
    )


def _ask(endpoint: str, **query: str) -> dict[str, Any] | None:
    """Return the answer of an endpoint of MLflow's REST API, from a store of any kind; None if nothing is there."""
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if stores.is_embedded(uri):
        return _from_file(stores.database_file(uri), endpoint, query)
    if _is_server(uri):
        shared: _Reading | None = getattr(_thread, "reading", None)
        if shared is None:
            return rest(endpoint, query)
        if shared.away:
            raise shared.away
        try:
            return rest(endpoint, query)
        except StoreError as error:
            shared.away = error
            raise
    return _through_mlflow(endpoint, query)


def _is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def _from_file(path: Path, endpoint: str, query: Mapping[str, str]) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        with contextlib.ExitStack() as stack:
            shared: _Reading = getattr(_thread, "reading", None) or _Reading(stack)
            if path not in shared.connections:
                connection = sqlite3.connect(sqlite_files.read_only(path), uri=True, timeout=10)
                shared.connections[path] = shared.end.enter_context(contextlib.closing(connection))
            row = shared.connections[path].execute(_SQL[endpoint], query).fetchone()
    except sqlite3.DatabaseError as error:
        if "no such table" in str(error):
            return None
        place = f"{path}: the registry cannot be read"
        raise sqlite_files.store_error(place, error, "put it back from a copy") from error
    return dict(json.loads(row[0])) if row else None


def rest(endpoint: str, query: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the answer of an endpoint of MLflow's server; None if nothing is there.

    Raises:
        StoreError: The server is away, or refuses the account.
    """
    uri = os.environ["MLFLOW_TRACKING_URI"]
    try:
        with opened(f"{uri.rstrip('/')}/api/2.0/mlflow/{endpoint}?{urllib.parse.urlencode(query)}") as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        if error.code in (400, 404):
            return None
        error.close()
        raise refusal(error.code, f"the registry at {uri}", f"{endpoint} answered {error.code}") or StoreError(
            f"the registry at {uri} answered {error.code}: look at its log, or correct MLFLOW_TRACKING_URI"
        ) from error
    except (OSError, ValueError) as error:
        raise StoreError(
            f"the registry at {uri} cannot be reached ({error}): start the server, or correct MLFLOW_TRACKING_URI"
        ) from error


def _through_mlflow(endpoint: str, query: Mapping[str, str]) -> dict[str, Any] | None:
    from mlflow.exceptions import MlflowException
    from mlflow.utils.proto_json_utils import message_to_json

    method, field = _CLIENT[endpoint]
    with reaching_store():
        try:
            answer = getattr(client(), method)(*query.values())
        except MlflowException as error:
            if error.error_code in _NOT_THERE:
                return None
            raise
    if answer is None:
        return None
    return {field: answer if isinstance(answer, str) else json.loads(message_to_json(answer.to_proto()))}


def _version(answer: dict[str, Any] | None) -> RegisteredVersion | None:
    fields = _field("model_version", answer)
    return RegisteredVersion(number=str(fields["version"]), tags=_tags(fields)) if fields else None


def _field(name: str, answer: dict[str, Any] | None) -> dict[str, Any]:
    if answer is not None and name not in answer:
        uri = os.environ["MLFLOW_TRACKING_URI"]
        raise StoreError(f"the registry at {uri} is no MLflow registry: correct MLFLOW_TRACKING_URI")
    return dict(answer[name]) if answer else {}


def _tags(fields: Mapping[str, Any]) -> dict[str, str]:
    return {pair["key"]: pair["value"] for pair in fields.get("tags", [])}


def opened(address: str, timeout_s: float = 10.0) -> HTTPResponse:
    """Open an address by HTTP, with the registry's secret if it is of the registry's server; gives the bytes."""
    is_ours = is_same_server(address, os.environ["MLFLOW_TRACKING_URI"])
    request = urllib.request.Request(address, headers=authorization() if is_ours else {})  # noqa: S310 - configured
    return http_client.opened(request, timeout_s)


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
