"""Sources of raw data: files, package registries, and a user's own function.

| source | is |
|---|---|
| `penguins.csv`, `parts/` | a file, or a folder of Parquet or of plain text, beside the spec |
| `pypi:NAME==VERSION!member`, `npm:NAME@VERSION!member`, `debian:NAME!member` | a file inside a package |
| `./source.py:load`, `package.module:load` | a function that returns a data frame, an Arrow table or a path |

A package is fetched by its registry's own client, with the client's settings on this machine. `#sha256=...` at the end
of a source pins the file. A function may take `fetch` (a package source -> path) and `project` (the spec's folder).
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from models.errors import DataError, UsageError, UserCodeError
from models.files import write_bytes
from models.project_spec import references
from models.project_spec.blocks import Spec
from models.sources.read import read_source
from tasks.tools.packages import open_package, read_member

ARRIVED = "arrived"
_SYNTAX = re.compile(
    r"(?P<registry>pypi|npm|debian):(?P<name>@?[A-Za-z0-9][\w.+/-]*?)"
    r"(?:(?:==|@|=)(?P<version>[\w.+~:-]+))?!(?P<member>[^#]+?)(?:#sha256=(?P<sha256>[0-9a-f]{64}))?"
)
_EXAMPLE = "pypi:NAME==VERSION!path/inside, npm:NAME@VERSION!path/inside or debian:NAME!path/inside"


@dataclass(frozen=True)
class PackageSource:
    """A file inside a package of a registry."""

    registry: Literal["pypi", "npm", "debian"]
    name: str
    version: str | None
    member: str
    sha256: str | None

    @property
    def folder(self) -> str:
        """The package's folder under the cache."""
        return f"{self.registry}/{self.name.replace('/', '_')}-{self.version or 'any'}"


def parse(source: str) -> PackageSource:
    """Parse a package source.

    Raises:
        UsageError: The format is wrong, or the version is missing, without which the data may change.
    """
    match = _SYNTAX.fullmatch(source.strip())
    if not match:
        raise UsageError(f"data.source: got {source!r}, expected {_EXAMPLE}, with #sha256=<64 hex digits> at the end")
    parts: dict[str, Any] = match.groupdict()
    if parts["version"] is None and parts["registry"] != "debian":
        raise UsageError(f"data.source: {source!r} names no version, so its data may change: write {_EXAMPLE}")
    return PackageSource(**parts)


def fetch(source: str, cache: Path) -> Path:
    """Return the file that a package source names; it is fetched at first use and stored under `cache`.

    Raises:
        UsageError: The format of `source` is wrong.
        StoreError: The registry's client is missing or failed (offline); nothing half-written stays.
        DataError: The package has no such file, or the file's hash is not the pinned one.
    """
    package = parse(source)
    path = cache / package.folder / "files" / package.member
    if path.is_file() and package.sha256 in (None, _sha256(path.read_bytes())):
        return path
    archive = open_package(package.registry, package.name, package.version, cache / package.folder)
    content = read_member(archive, package.member)
    _check_pin(content, package, source)
    write_bytes(path, content)
    return path


def ingest(spec: Spec, base: Path, cache: Path) -> pa.Table:
    """Return the raw table of a project.

    Args:
        spec: The project's spec; `data.source` is read.
        base: The folder of the spec, to which paths and references are relative.
        cache: The folder for fetched packages.

    Raises:
        DataError: The data cannot be read.
        StoreError: The data cannot be fetched.
        UserCodeError: The spec's own source function failed.
    """
    source, data = spec.data.source, spec.data
    read = functools.partial(read_source, id_column=data.id, is_text=data.kind == "text", na_is_text=data.na_is_text)
    path = references.local_source(source, base)
    if path is not None:
        return read(path)
    if references.is_package(source):
        return read(fetch(source, cache), display_name=source)
    return _from_function(source, base, cache, read)


def _from_function(source: str, base: Path, cache: Path, read: Callable[..., pa.Table]) -> pa.Table:
    loaded = call(references.resolve(source, base), source, base, fetch=functools.partial(fetch, cache=cache))
    if isinstance(loaded, (str, Path)):
        loaded = base / loaded
    try:
        return read(loaded, display_name=f"data.source {source}")
    except DataError as error:
        if "expected a pandas DataFrame" in str(error):
            raise UserCodeError(f"{error}: end the function with `return frame`") from error
        raise


def arrived(spec: Spec, base: Path) -> Any:
    """Return the current result of the source's own function `arrived`, or None if there is none.

    Raises:
        UserCodeError: The function failed, or its result is not JSON.
    """
    target = spec.data.source.rpartition(":")[0]
    file = references.source_file(spec.data.source, base)
    if file is None or not file.is_file() or f"def {ARRIVED}(" not in file.read_text(errors="replace"):
        return None
    reference = f"{target}:{ARRIVED}"
    arrival = call(references.resolve(reference, base), reference, base)
    try:
        return json.loads(json.dumps(arrival))
    except (TypeError, ValueError) as error:
        raise UserCodeError(f"{reference}: gave {type(arrival).__name__}, expected a JSON value: {error}") from error


def call(function: Callable[..., Any], reference: str, base: Path, **offered: Any) -> Any:
    """Call a function of the spec's own source with those arguments of `project` and `offered` that it takes.

    Raises:
        UserCodeError: The function failed, or requires other arguments.
    """
    return references.call(function, reference, **_wanted(function, reference, {**offered, "project": base}))


def _wanted(function: Callable[..., Any], source: str, offered: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    needed = [
        name for name, parameter in parameters.items() if parameter.default is parameter.empty and name not in offered
    ]
    if needed:
        raise UserCodeError(
            f"data.source {source}: takes {', '.join(needed)}, expected no argument but `fetch` (a package source -> "
            "path) and `project` (the spec's folder): rename it, or give it a default"
        )
    return {name: value for name, value in offered.items() if name in parameters}


def _check_pin(content: bytes, package: PackageSource, source: str) -> None:
    got = _sha256(content)
    if package.sha256 not in (None, got):
        raise DataError(
            f"data.source {source}: the file's sha256 is {got}, expected the pinned one: the package or the download "
            "changed; nothing was stored. Run again, or, if the change is meant, pin the new value"
        )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
