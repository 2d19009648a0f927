"""Source archives of Python's package indexes, downloaded without running their code.

pip would run an archive's build script for its metadata, so pip is used only for wheels.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import requests
from packaging.version import InvalidVersion, Version
from pypi_simple import (
    PYPI_SIMPLE_ENDPOINT,
    DigestMismatchError,
    DistributionPackage,
    NoDigestsError,
    NoSuchProjectError,
    PyPISimple,
    UnsupportedContentTypeError,
)

from models.errors import StoreError

_TIMEOUT_S = 60.0
_SETTING = re.compile(r"^(?P<section>[^.]+)\.(?P<key>[a-z-]+)='(?P<value>.*)'$")


def download(name: str, version: str, into: Path, pip: Sequence[str]) -> bool:
    """Download the source archive of a package into a folder and check its hash against the index.

    Args:
        name: The package.
        version: The package's version, as the user wrote it.
        into: The folder.
        pip: The command of pip, whose settings name the indexes.

    Returns:
        Whether an index has the archive.

    Raises:
        StoreError: An index does not respond and no other has the archive, or its hash is not that of the index.
    """
    settings = _settings(pip)
    failures: list[str] = []
    with requests.Session() as session:
        if settings.get("cert"):
            session.verify = settings["cert"][-1]
        for index in _indexes(settings):
            try:
                with PyPISimple(index, session=session) as client:
                    archive = _archive(client, name, version)
                    if archive is not None:
                        client.download_package(archive, into / archive.filename, timeout=_TIMEOUT_S)
                        return True
            except NoSuchProjectError:
                continue
            except (requests.RequestException, UnsupportedContentTypeError) as error:
                failures.append(f"{type(error).__name__} of an index")
            except (DigestMismatchError, NoDigestsError) as error:
                raise StoreError(f"pypi:{name}: {error}: nothing was stored; run again") from error
    if failures:
        raise StoreError(
            f"pypi:{name}: no answer ({', '.join(failures)}): is this machine offline? Nothing was stored; run again"
        )
    return False


def _archive(client: PyPISimple, name: str, version: str) -> DistributionPackage | None:
    page = client.get_project_page(name, timeout=_TIMEOUT_S)
    archives = (archive for archive in page.packages if archive.package_type == "sdist" and archive.version)
    return next((archive for archive in archives if _is_same(archive.version or "", version)), None)


def _is_same(version: str, other_version: str) -> bool:
    try:
        return Version(version) == Version(other_version)
    except InvalidVersion:
        return version == other_version


def _settings(pip: Sequence[str]) -> dict[str, list[str]]:
    """Return pip's settings for `download` from files and environment: a list of values per key; the last counts."""
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False).stdout
    settings: dict[str, list[str]] = {}
    for line in listed.splitlines():
        setting = _SETTING.match(line)
        if setting and setting["section"] in ("global", "download", ":env:"):
            settings.setdefault(setting["key"], []).extend(setting["value"].replace("\\n", " ").split())
    return settings


def _indexes(settings: dict[str, list[str]]) -> list[str]:
    first = settings.get("index-url", [PYPI_SIMPLE_ENDPOINT])[-1]
    return [index for index in (first, *settings.get("extra-index-url", [])) if index.startswith(("http:", "https:"))]
