"""The history of a registered model: which version held which alias, since when, and its verdict.

Like `registry_reader`, it does not import MLflow if the registry is the local file or a server.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from models.errors import StoreError
from models.judge.verdict import Verdict
from models.report.facts import ChampionMove
from tasks.host import stores
from tasks.mlflow.registry_reader import ALIASES, RegisteredVersion, authorization

JOURNAL = "loopline.journal."
VERDICT_FILE = "verdict.json"
WORKSPACE = "default"  # the name of MLflow's only workspace; it is the first column of the index
SERVED = "mlflow-artifacts:/"


class RegistryHistory(BaseModel):
    """The versions with an alias, the last moves of the champion (newest first), and the verdicts of the versions."""

    versions: dict[str, RegisteredVersion] = Field(default_factory=dict, description="By alias.")
    moves: list[ChampionMove] = Field(default_factory=list)
    verdicts: dict[str, Verdict] = Field(default_factory=dict, description="By version, where its file can be read.")


def story(model: str, most_moves: int = 50) -> RegistryHistory:
    """Return the history of a model; empty if it is not registered.

    Raises:
        StoreError: The registry is unavailable.
    """
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if stores.is_embedded(uri):
        return _from_file(stores.database_file(uri), model, most_moves)
    if uri.startswith(("http://", "https://")):
        return _over_rest(uri.rstrip("/"), model, most_moves)
    return _through_mlflow(model, most_moves)


def _from_file(path: Path, model: str, most_moves: int) -> RegistryHistory:
    if not path.exists():
        return RegistryHistory()
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)
        ) as connection:
            return _read(connection, model, most_moves)
    except sqlite3.DatabaseError as error:
        if "no such table" in str(error):
            return RegistryHistory()
        raise StoreError(f"{path}: the registry cannot be read: {error}") from error


def _read(connection: sqlite3.Connection, model: str, most_moves: int) -> RegistryHistory:
    aliases = dict(
        connection.execute("select alias, version from registered_model_aliases where name = ?", (model,)).fetchall()
    )
    journal = connection.execute(
        "select value from registered_model_tags where workspace = ? and name = ? and key between ? and ? "
        "order by key desc limit ?",
        (WORKSPACE, model, JOURNAL, f"{JOURNAL}~", most_moves),
    )
    moves = _moves(value for (value,) in journal)
    versions, verdicts = {}, {}
    for alias in ALIASES:
        if alias in aliases:
            number = aliases[alias]
            tags = connection.execute(
                "select key, value from model_version_tags where name = ? and version = ?", (model, number)
            )
            versions[alias] = RegisteredVersion(number=str(number), tags=dict(tags.fetchall()))
            place = connection.execute(
                "select storage_location from model_versions where name = ? and version = ?", (model, number)
            ).fetchone()
            verdict = _verdict(_local(place[0])) if place and place[0] else None
            if verdict:
                verdicts[str(number)] = verdict
    return RegistryHistory(versions=versions, moves=moves, verdicts=verdicts)


def _over_rest(uri: str, model: str, most_moves: int) -> RegistryHistory:
    answer = _get(uri, "registered-models/get", name=model)
    if answer is None:
        return RegistryHistory()
    registered = answer["registered_model"]
    aliases = {pair["alias"]: str(pair["version"]) for pair in registered.get("aliases", [])}
    journal = {tag["key"]: tag["value"] for tag in registered.get("tags", []) if tag["key"].startswith(JOURNAL)}
    moves = _moves(journal[key] for key in sorted(journal, reverse=True)[:most_moves])
    versions, verdicts = {}, {}
    for alias in ALIASES:
        number = aliases.get(alias)
        version = _get(uri, "model-versions/get", name=model, version=number) if number else None
        if number and version:
            tags = {tag["key"]: tag["value"] for tag in version["model_version"].get("tags", [])}
            versions[alias] = RegisteredVersion(number=number, tags=tags)
            verdict = _verdict(_served(uri, model, number))
            if verdict:
                verdicts[number] = verdict
    return RegistryHistory(versions=versions, moves=moves, verdicts=verdicts)


def _through_mlflow(model: str, most_moves: int) -> RegistryHistory:
    from mlflow.exceptions import MlflowException

    from tasks.mlflow.delivery import client, reaching_store

    with reaching_store():
        store = client()
        try:
            registered = store.get_registered_model(model)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return RegistryHistory()
            raise
        journal = {key: value for key, value in registered.tags.items() if key.startswith(JOURNAL)}
        versions, verdicts = {}, {}
        for alias in ALIASES:
            if alias in registered.aliases:
                number = str(registered.aliases[alias])
                versions[alias] = RegisteredVersion(
                    number=number, tags=dict(store.get_model_version(model, number).tags)
                )
                verdict = _verdict(_local(store.get_model_version_download_uri(model, number)))
                if verdict:
                    verdicts[number] = verdict
    moves = _moves(journal[key] for key in sorted(journal, reverse=True)[:most_moves])
    return RegistryHistory(versions=versions, moves=moves, verdicts=verdicts)


def _moves(texts: Iterable[str]) -> list[ChampionMove]:
    return [ChampionMove.model_validate_json(text) for text in texts]


def _verdict(text: str | None) -> Verdict | None:
    """Parse a verdict; return None if an older or newer Loopline wrote it in another form: its tags remain."""
    with contextlib.suppress(ValidationError):
        return Verdict.model_validate_json(text) if text else None
    return None


def _local(place: str) -> str | None:
    """Return the verdict from a version's files on this machine; None if it cannot be read."""
    if not place.startswith(("file://", "/")):
        return None
    folder = Path(urllib.parse.unquote(urllib.parse.urlsplit(place).path))
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (folder / VERDICT_FILE).read_text()
    return None


def _served(uri: str, model: str, number: str) -> str | None:
    """Return a version's verdict from the files that an MLflow server serves, or from this machine's files."""
    reply = _get(uri, "model-versions/get-download-uri", name=model, version=number) or {}
    place = str(reply.get("artifact_uri", ""))
    if not place.startswith(SERVED):
        return _local(place)
    path = urllib.parse.quote(place.removeprefix(SERVED).strip("/"))
    with contextlib.suppress(urllib.error.URLError, OSError, UnicodeDecodeError):
        answer = _open(f"{uri}/api/2.0/mlflow-artifacts/artifacts/{path}/{VERDICT_FILE}")
        return answer.decode()
    return None


def _get(uri: str, what: str, **query: str) -> dict[str, Any] | None:
    """Return the registry's REST answer, or None if the registry does not know the object.

    Raises:
        StoreError: The registry is away.
    """
    try:
        answer: Mapping[str, Any] = json.loads(_open(f"{uri}/api/2.0/mlflow/{what}?{urllib.parse.urlencode(query)}"))
    except urllib.error.HTTPError as error:
        if error.code in (400, 404):
            return None
        raise StoreError(f"the registry at {uri} answered {error.code}") from error
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise StoreError(f"the registry at {uri} cannot be reached: {error}") from error
    return dict(answer)


def _open(address: str) -> bytes:
    request = urllib.request.Request(address, headers=authorization())  # noqa: S310 - the address the user configured
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        content: bytes = answer.read()
    return content
