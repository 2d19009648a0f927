"""The model cache: files of versions, downloaded once, verified each time, available while the registry is away."""

from __future__ import annotations

import os
import shutil
import tempfile
import urllib.error
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Literal

from models.errors import StoreError, UsageError
from models.files import read_json, replacing_folder, sha256, whole_file, write_json
from models.judge.verdict import Verdict
from models.project_spec.references import ALIASES
from models.serving.registry import FILES, RegisteredVersion
from tasks.host.http_client import is_same_server
from tasks.host.locks import FOREVER_S, held
from tasks.host.object_store import ObjectStore, object_store
from tasks.host.workspace import Workspace
from tasks.mlflow import embedded_store, registry_reader
from tasks.mlflow.client import reaching_store

VERDICT_FILE = "verdict.json"
TIMEOUT_S = 30.0
_SERVED, _LOCAL = "mlflow-artifacts:/", ("file://", "/")
"""URIs of files on an MLflow server and on this machine; MLflow can read every kind."""
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


def signing_key() -> str | None:
    """Return the key that signs and verifies versions, `LOOPLINE_SIGNING_KEY`; None if it is not set."""
    return os.environ.get("LOOPLINE_SIGNING_KEY") or None


def cached_version(
    workspace: Workspace, model: str, requested: str = "champion", names: Collection[str] = ()
) -> CachedModel:
    """Return a version of a model, from the cache if it is complete there, else from the registry.

    Args:
        workspace: The workspace whose cache is used.
        model: The registered model, which has the project's name.
        requested: `champion`, another alias, or a number.
        names: The files that are needed; default: all.

    Raises:
        UsageError: There is no such version.
        StoreError: The registry is away and the cache does not contain the version, or the registry's files are not
            what was registered.
    """
    try:
        version = registry_reader.named(workspace.state, model, requested)
    except StoreError as error:
        try:
            cached = local_copy(workspace, model, requested, names)
        except StoreError as trouble:
            raise StoreError(f"{error}; {trouble}") from error
        return replace(cached, note=f"{error}: going on with version {cached.number} from the cache")
    if version is None:
        cure = f"`loopline run {model}` makes one" if requested == "champion" else "name another"
        raise UsageError(f"{model}: there is no version {requested!r}: {cure}")
    return cached_copy(workspace, model, version, fetch, requested, names)


def cached_copy(
    workspace: Workspace,
    model: str,
    version: RegisteredVersion,
    fetched: Callable[[Workspace, str, str, Path], None],
    alias: str = "",
    names: Collection[str] = (),
) -> CachedModel:
    """Return the cached copy of a registered version; its files are checked against the hashes in the version's tags.

    Args:
        workspace: The workspace whose cache is used.
        model: The registered model.
        version: The version from the registry.
        fetched: Downloads the version into a folder if its files are neither on this machine nor on an MLflow server.
        alias: If it is an alias, the cache saves its version number for when the registry is away.
        names: The files that are needed; default: all.

    Raises:
        StoreError: The version cannot be downloaded, or the registry's files are not what was registered.
    """
    place = workspace.cache / "models" / model
    hashes, folder = version.hashes, place / version.number
    with held(workspace.locks / f"cache-{model}.lock", lambda: f"{folder}: in use", FOREVER_S):
        broken = [name for name, _ in damage(folder, _chosen(hashes, names))]
        if not hashes or (broken and not _copied(model, version, folder, broken)):
            fetched(workspace, model, version.number, folder)
        if alias in ALIASES:
            write_json(place / _LAST, {**read_json(place / _LAST), alias: version.number})
        write_json(folder.with_suffix(".json"), hashes)
    return CachedModel(version.number, folder, hashes)


def stored_file(workspace: Workspace, model: str, version: RegisteredVersion, name: str) -> Path | None:
    """Return a file of a version in the cache, checked against its hash; None if the version has none of that name.

    MLflow is never imported for it: the server of the pages stays small.

    Raises:
        StoreError: Only MLflow can read its store, or the file is not what was registered.
    """

    def refuse(_: Workspace, model: str, number: str, __: Path) -> None:
        raise StoreError(f"{model} version {number}: only MLflow can read the store of its files")

    if name not in version.hashes:
        return None
    return cached_copy(workspace, model, version, refuse, names=[name]).folder / name


def local_copy(
    workspace: Workspace, model: str, requested: str = "champion", names: Collection[str] = ()
) -> CachedModel:
    """Return a version that is in the cache, without a look at the registry; an alias as it was at the last look.

    Raises:
        StoreError: The version is not in the cache, or a file of it is missing or changed.
    """
    place = workspace.cache / "models" / model
    number = str(read_json(place / _LAST).get(requested, requested))
    folder = place / number
    hashes = read_json(folder.with_suffix(".json"))
    if not hashes:
        raise StoreError(
            f"the cache {place} does not hold version {requested!r} either: try again when the registry is back"
        )
    with suppress(OSError):  # of a cache that can only be read
        os.utime(folder.with_suffix(".json"))  # it is in use, so it stays
    for name, got in damage(folder, _chosen(hashes, names)):
        words = {"missing": "is missing", "changed": "is not what was registered"}[got]
        raise StoreError(f"and in the cache {folder / name} {words}: it can be used again when the registry is back")
    return CachedModel(number, folder, hashes)


def numbered_copy(workspace: Workspace, model: str, number: str, names: Collection[str] = ()) -> CachedModel:
    """Return a numbered version: from the cache without a look at the registry, else from the registry.

    Raises:
        UsageError: There is no such version.
        StoreError: Neither the cache nor the registry can give it.
    """
    try:
        return local_copy(workspace, model, number, names)
    except StoreError:
        return cached_version(workspace, model, number, names)


def with_verdict(model: str, version: RegisteredVersion) -> RegisteredVersion:
    """Return the version with its verdict, unless only MLflow can read it or another Loopline wrote it.

    Raises:
        StoreError: The registry is unavailable.
    """
    place, digest = _place_of(model, version), version.hashes.get(VERDICT_FILE, "")
    with suppress(OSError, ValueError, StoreError):
        return version.model_copy(update={"verdict": _hashed_verdict(place, digest) if digest else _verdict(place)})
    return version


@lru_cache(maxsize=1000)
def _hashed_verdict(place: str, digest: str) -> Verdict:
    """Return a verdict, whose file a registered version names by its hash: it does not change."""
    del digest
    return _verdict(place)


def _verdict(place: str) -> Verdict:
    with _opened(place, VERDICT_FILE) as file:
        return Verdict.model_validate_json(file.read())


def fetch(workspace: Workspace, model: str, number: str, folder: Path) -> None:
    """Download a version into a folder by MLflow, from a store of any kind, and verify it.

    Raises:
        StoreError: The version cannot be downloaded, or is not what was registered.
    """
    import mlflow

    embedded_store.initialise(workspace)
    version = registry_reader.named(workspace.state, model, number)
    _refuse_other_server(model, number, _place_of(model, version or RegisteredVersion(number=number)))
    with replacing_folder(folder) as place, tempfile.TemporaryDirectory(dir=place.parent) as temporary:
        with reaching_store():
            files = Path(mlflow.artifacts.download_artifacts(f"models:/{model}/{number}", dst_path=temporary))
        for name, got in damage(files, version.hashes if version else {}):
            raise _refusal(model, number, name, got)
        for path in files.iterdir():
            shutil.move(path, place / path.name)


def damage(folder: Path, hashes: Mapping[str, str]) -> Iterator[tuple[str, Literal["changed", "missing"]]]:
    """Yield the files of a version that are not what was registered, with the kind of damage."""
    for name, digest in hashes.items():
        path = folder / name
        if not path.is_file():
            yield name, "missing"
        elif sha256(path) != digest:
            yield name, "changed"


def _chosen(hashes: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: digest for name, digest in hashes.items() if not names or name in names}


def _copied(model: str, version: RegisteredVersion, folder: Path, broken: Collection[str]) -> bool:
    """Copy files without MLflow; return False if they are in a store that only MLflow can read."""
    number, hashes = version.number, version.hashes
    place = _place_of(model, version)
    is_at_root = _below_root(place)[0] is not None
    if not is_at_root and not place.startswith((_SERVED, *_LOCAL)):
        return False
    for name in broken:
        try:
            with whole_file(_inside(folder, name)) as temporary:
                with _opened(place, name) as file, temporary.open("wb") as to:
                    shutil.copyfileobj(file, to)
                if sha256(temporary) != hashes[name]:
                    raise _refusal(model, number, name, "changed")
        except FileNotFoundError as error:
            raise _refusal(model, number, name, "missing") from error
        except OSError as error:
            raise StoreError(f"{model} version {number}: its files cannot be fetched from {place}: {error}") from error
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in hashes:
            path.unlink()  # of another version with this number: the registry was made anew
    return True


def _place_of(model: str, version: RegisteredVersion) -> str:
    return version.place or registry_reader.files_at(model, version.number)


def _inside(folder: Path, name: str) -> Path:
    """Return the path of a file in a version's folder; refuse a name that leads out of it."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise StoreError(f"got a file called {name!r} in {FILES}, expected one inside the version")
    return folder / path


def _opened(place: str, name: str) -> IO[bytes]:
    """Open a file of a version on this machine, below the root, on the registry's server, or on the one of `place`.

    Raises:
        FileNotFoundError: There is no such file, or only MLflow can read the place.
        OSError: The file cannot be read now.

    Source: MLflow's REST API.
    """
    parts = urllib.parse.urlsplit(place)
    store, below = _below_root(place)
    if store:
        return store.opened(f"{below}/{name}")
    if place.startswith(_LOCAL):
        return (Path(urllib.parse.unquote(parts.path)) / name).open("rb")
    if not place.startswith(_SERVED):
        raise FileNotFoundError(place)
    server = _server_of(parts.netloc)
    path = urllib.parse.quote(f"{parts.path.strip('/')}/{name}")
    try:
        return registry_reader.opened(f"{server}/api/2.0/mlflow-artifacts/artifacts/{path}", TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()  # it is kept as a cause, and would keep the connection open
        if error.code == 404:
            raise FileNotFoundError(place) from error
        raise


def _server_of(netloc: str) -> str:
    """Return the address of the server that a place `mlflow-artifacts://NETLOC/...` names: by default the registry's.

    Its scheme is the registry's, as MLflow's own client has it.
    """
    registry = os.environ["MLFLOW_TRACKING_URI"].rstrip("/")
    parts = urllib.parse.urlsplit(registry)
    scheme = parts.scheme if parts.scheme in ("http", "https") else "http"
    return f"{scheme}://{netloc}" if netloc and netloc != parts.netloc else registry


def _refuse_other_server(model: str, number: str, place: str) -> None:
    """Refuse a version that lies on another server: MLflow's client would send it the registry's token or password."""
    parts = urllib.parse.urlsplit(place)
    server = _server_of(parts.netloc) if place.startswith(_SERVED) else place
    is_elsewhere = server.startswith(("http://", "https://")) and not is_same_server(
        server, os.environ["MLFLOW_TRACKING_URI"]
    )
    if is_elsewhere and registry_reader.authorization():
        raise StoreError(
            f"{model} version {number}: its files are at {place}, where the secret of MLFLOW_TRACKING_URI must not go: "
            "register it again with its files on the registry's own server"
        )


def _below_root(place: str) -> tuple[ObjectStore | None, str]:
    """Return the object store and the name in it of a place below LOOPLINE_ROOT; None for another place."""
    store = object_store()
    if store is None or not place.startswith(f"{store.address}/"):
        return None, ""
    return store, place.removeprefix(f"{store.address}/").rstrip("/")


def _refusal(model: str, number: str, name: str, got: str) -> StoreError:
    return StoreError(
        f"{model} version {number}: {name} is {got} in the store: it is not what was registered; "
        "restore the artifacts, or roll back with `loopline rollback`"
    )
