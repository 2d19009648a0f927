"""The model cache: files of versions, downloaded once, verified each time, available while the registry is away."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from models.errors import StoreError, UsageError
from models.files import read_json, replacing_folder, write_json
from tasks.host.locks import FOREVER_S, held
from tasks.host.workspace import Workspace
from tasks.mlflow import registry_reader
from tasks.mlflow.artifacts import FILES, bring_files, damage, download_version, refuse_damage
from tasks.mlflow.registry_reader import RegisteredVersion

_LAST = "aliases.json"


@dataclass(frozen=True)
class CachedModel:
    """A version's folder with `model.onnx`, `preparation.json` and its other files, as registered.

    `note`: a message for a person about its source, such as that the registry was away; else empty.
    """

    number: str
    folder: Path
    hashes: dict[str, str]
    note: str = ""


def cached_version(workspace: Workspace, model: str, wanted: str = "champion") -> CachedModel:
    """Return a version of a model, from the cache if it is complete there, else from the registry.

    Args:
        workspace: The workspace whose cache is used.
        model: The registered model, which has the project's name.
        wanted: `champion`, another alias, or a number.

    Raises:
        UsageError: There is no such version.
        StoreError: The registry is away and the cache does not contain the version, or the registry's files are not
            what was registered.
    """
    place = workspace.cache / "models" / model
    try:
        version = _look_up(model, wanted)
    except StoreError as error:
        return _without_registry(place, model, wanted, error)
    if version is None:
        cure = f"`loopline run {model}` makes one" if wanted == "champion" else "name another"
        raise UsageError(f"{model}: there is no version {wanted!r}: {cure}")
    return cached_copy(workspace, model, version, fetch, wanted)


def cached_copy(
    workspace: Workspace,
    model: str,
    version: RegisteredVersion,
    fetched: Callable[[Workspace, str, str, Path], None],
    alias: str = "",
) -> CachedModel:
    """Return the cached copy of a registered version; every file is checked against the hashes in the version's tags.

    Args:
        workspace: The workspace whose cache is used.
        model: The registered model.
        version: The version from the registry.
        fetched: Downloads the version into a folder if its files are neither on this machine nor on an MLflow server.
        alias: If it is an alias, the cache saves its version number for when the registry is away.

    Raises:
        StoreError: The version cannot be downloaded, or the registry's files are not what was registered.
    """
    place = workspace.cache / "models" / model
    hashes: dict[str, str] = json.loads(version.tags.get(FILES, "{}"))
    folder = place / version.number
    with held(workspace.locks / f"cache-{model}.lock", lambda: f"{folder}: in use", FOREVER_S):
        whole = hashes and not any(damage(folder, hashes))
        if not whole and not (hashes and _copied(model, version.number, folder, hashes)):
            fetched(workspace, model, version.number, folder)
        if alias in registry_reader.ALIASES:
            write_json(place / _LAST, {**read_json(place / _LAST), alias: version.number})
        write_json(folder.with_suffix(".json"), hashes)
    return CachedModel(version.number, folder, hashes)


def _copied(model: str, number: str, folder: Path, hashes: dict[str, str]) -> bool:
    """Copy the files without MLflow; return False if they are in a store that only MLflow can read."""
    with contextlib.suppress(_RemoteStore), replacing_folder(folder) as place:
        if not bring_files(model, number, hashes, place):
            raise _RemoteStore
        refuse_damage(model, number, place, hashes)
        return True
    return False


class _RemoteStore(Exception):  # noqa: N818 - it states a place, it is no error
    pass


def _look_up(model: str, wanted: str) -> RegisteredVersion | None:
    if wanted in registry_reader.ALIASES:
        return registry_reader.aliased(model, wanted)
    return registry_reader.numbered(model, wanted) if wanted.isdecimal() else None


def _without_registry(place: Path, model: str, wanted: str, error: StoreError) -> CachedModel:
    number = read_json(place / _LAST).get(wanted, wanted)
    folder = place / number
    hashes = read_json(folder.with_suffix(".json"))
    if not hashes:
        raise StoreError(f"{error}; the cache {place} does not hold version {wanted!r} either") from error
    for name, got in damage(folder, hashes):
        words = {"missing": "is missing", "changed": "is not what was registered"}[got]
        raise StoreError(
            f"{error}; and in the cache {folder / name} {words}: it can be used again when the registry is back"
        )
    return CachedModel(number, folder, hashes, f"{error}: going on with version {number} from the cache")


def fetch(workspace: Workspace, model: str, number: str, folder: Path) -> None:
    """Download a version into a folder by MLflow, from a store of any kind, and verify it.

    Raises:
        StoreError: The version cannot be downloaded, or is not what was registered.
    """
    with replacing_folder(folder) as place, tempfile.TemporaryDirectory(dir=place.parent) as temporary:
        version = download_version(workspace, model, number, Path(temporary))
        for path in version.iterdir():
            shutil.move(path, place / path.name)
