"""A file in a registry's package: `pypi:NAME==VERSION!member`, `npm:NAME@VERSION!member` or `debian:NAME!member`.

`#sha256=...` at the end pins the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from models.errors import UsageError
from models.sources.source import Fetch, Loaded, Source

SCHEMES = ("pypi:", "npm:", "debian:")
EXAMPLE = "pypi:NAME==VERSION!path/inside, npm:NAME@VERSION!path/inside or debian:NAME!path/inside"
_SYNTAX = re.compile(
    r"(?P<registry>pypi|npm|debian):(?P<name>@?[A-Za-z0-9][\w.+/-]*?)"
    r"(?:(?:==|@|=)(?P<version>[\w.+~:-]+))?!(?P<member>[^#]+?)(?:#sha256=(?P<sha256>[0-9a-f]{64}))?"
)


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


def is_package(source: str) -> bool:
    """Return whether a package registry serves the source."""
    return source.startswith(SCHEMES)


def parse(source: str) -> PackageSource:
    """Parse a package source.

    Raises:
        UsageError: The format is wrong, or the version is missing, without which the data may change.
    """
    match = _SYNTAX.fullmatch(source.strip())
    if not match:
        raise UsageError(f"data.source: got {source!r}, expected {EXAMPLE}, with #sha256=<64 hex digits> at the end")
    parts: dict[str, Any] = match.groupdict()
    if parts["version"] is None and parts["registry"] != "debian":
        raise UsageError(f"data.source: {source!r} names no version, so its data may change: write {EXAMPLE}")
    return PackageSource(**parts)


def read(source: Source, fetch: Fetch) -> Loaded:
    """Return the file of the package. It is pinned, and never grows."""
    return Loaded(fetch(source.text), source.text)
