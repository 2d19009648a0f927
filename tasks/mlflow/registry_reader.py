"""Reads the registry: rows of the state database, and MLflow where they cannot answer.

MLflow's server is asked by its REST API. Any other store is asked by MLflow's client, whose import takes more than a
second: a loop with nothing to do, every plan and every status avoid it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

from models.errors import StoreError
from models.project_spec.references import ALIASES
from models.serving.registry import ChampionMove, RegisteredVersion
from models.serving.registry_comparison import OWNER
from tasks.host import database, http_client, stores
from tasks.host.http_client import is_same_server
from tasks.mlflow.client import client, reaching_store, refusal
from tasks.state import registered_models
from tasks.state.champion_moves import named_version, named_versions
from tasks.state.workspace_id import own_id

ANSWER_S = 5.0
"""How long MLflow's server may take to answer."""
ANYTHING = "registered-models/search"
"""What every account may ask."""
_thread = threading.local()
_NOT_THERE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""MLflow's error codes for a model, a version or an alias that does not exist."""
_CLIENT = {
    "registered-models/alias": ("get_model_version_by_alias", "model_version"),
    "model-versions/get": ("get_model_version", "model_version"),
    "model-versions/get-download-uri": ("get_model_version_download_uri", "artifact_uri"),
    "registered-models/get": ("get_registered_model", "registered_model"),
    "experiments/get-by-name": ("get_experiment_by_name", "experiment"),
}
"""The endpoints of MLflow's REST API that Loopline reads, as methods of its client, and the field of the answer."""


class RegisteredModel(NamedTuple):
    """A registered model: the version that each alias points at, and the model's tags."""

    aliases: dict[str, str]
    tags: dict[str, str]


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Ask a server that is away only once within the block, in this thread: each further read raises the same error."""
    _thread.errors = []
    try:
        yield
    finally:
        del _thread.errors


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
    if not is_server(os.environ["MLFLOW_TRACKING_URI"]):
        return None
    return aliased(model, name) if name in ALIASES else numbered(model, name)


def all_named(
    root: Path, moves: Mapping[str, Sequence[ChampionMove]], numbers: Mapping[str, Collection[str]]
) -> dict[str, dict[str, RegisteredVersion]]:
    """Return versions of several projects as `named` does, in a few queries; what MLflow must be asked is left out."""
    versions = named_versions(root, moves, numbers)
    if not is_server(os.environ["MLFLOW_TRACKING_URI"]):
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
    """Ask the registry for anything.

    Raises:
        StoreError: The registry is unavailable, or does not know the account.
    """
    if is_server(os.environ["MLFLOW_TRACKING_URI"]):
        rest(ANYTHING, {"max_results": 1})
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


def has_experiment(name: str) -> bool:
    """Return whether there is an experiment of this name.

    Raises:
        StoreError: The tracking store is unavailable.
    """
    return _ask("experiments/get-by-name", experiment_name=name) is not None


def _ask(endpoint: str, **query: str) -> dict[str, Any] | None:
    """Return the answer of an endpoint of MLflow's REST API, from a store of any kind; None if nothing is there."""
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if not is_server(uri):
        return _through_mlflow(endpoint, query)
    with _asked_once():
        return rest(endpoint, query)


def check_answers() -> None:
    """Ask MLflow's server, if that is the registry, for anything; its client would wait three times 15 s.

    `/health` does not ask the server's database: it answers while all else hangs.

    Raises:
        StoreError: It is away, or has not answered within ANSWER_S.
    """
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if not is_server(uri):
        return
    with _asked_once(), reaching_store():
        try:
            opened(_address(uri, ANYTHING, {"max_results": 1})).close()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:  # a proxy may know no such page
                raise


@contextlib.contextmanager
def _asked_once() -> Iterator[None]:
    """Within `reading`, raise the error of a server that was away, in place of asking it again."""
    errors: list[StoreError] = getattr(_thread, "errors", [])
    if errors:
        raise errors[0]
    try:
        yield
    except StoreError as error:
        errors.append(error)
        raise


def is_server(uri: str) -> bool:
    """Return whether MLflow is reached by HTTP at an address."""
    return uri.startswith(("http://", "https://"))


def rest(endpoint: str, query: Mapping[str, Any], server: str = "") -> dict[str, Any] | None:
    """Return the answer of an endpoint of MLflow's server; None if nothing is there.

    Args:
        endpoint: Below `/api/2.0/mlflow/`.
        query: The request's parameters.
        server: The server's address; default: the configured one.

    Raises:
        StoreError: The server is away, or refuses the account.
    """
    uri = (server or os.environ["MLFLOW_TRACKING_URI"]).rstrip("/")
    try:
        with opened(_address(uri, endpoint, query), server=uri) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (400, 404):
            return None
        raise refusal(error.code, f"the registry at {uri}", f"{endpoint} answered {error.code}") or StoreError(
            f"the registry at {uri} answered {error.code}: look at its log, or correct MLFLOW_TRACKING_URI"
        ) from error
    except (OSError, ValueError) as error:
        raise StoreError(
            f"the registry at {uri} cannot be reached ({error}): start the server, or correct MLFLOW_TRACKING_URI"
        ) from error


def _address(uri: str, endpoint: str, query: Mapping[str, Any]) -> str:
    return f"{uri.rstrip('/')}/api/2.0/mlflow/{endpoint}?{urllib.parse.urlencode(query)}"


def _through_mlflow(endpoint: str, query: Mapping[str, str]) -> dict[str, Any] | None:
    from google.protobuf.json_format import MessageToDict
    from mlflow.exceptions import MlflowException

    uri = os.environ["MLFLOW_TRACKING_URI"]
    if stores.is_embedded(uri) and not stores.has_file(uri):
        return None  # to open it would make it
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
    if isinstance(answer, str):
        return {field: answer}
    return {field: MessageToDict(answer.to_proto(), preserving_proto_field_name=True)}


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


def opened(address: str, timeout_s: float | None = None, server: str = "", method: str = "GET") -> HTTPResponse:
    """Open an address by HTTP, with the registry's secret if it is of the registry's server; gives the bytes.

    Args:
        address: What to open.
        timeout_s: How long an answer may take; default: ANSWER_S.
        server: The registry's address; default: the configured one.
        method: Of HTTP.
    """
    is_ours = is_same_server(address, server or os.environ["MLFLOW_TRACKING_URI"])
    headers = authorization() if is_ours else {}
    request = urllib.request.Request(address, headers=headers, method=method)  # noqa: S310 - configured
    return http_client.opened(request, timeout_s or ANSWER_S)


def authorization() -> dict[str, str]:
    """Return the authorization header for a REST registry, from the same environment variables as MLflow."""
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    if token:
        return {"Authorization": f"Bearer {token}"}
    user, password = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD")
    if user and password:
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
    return {}
