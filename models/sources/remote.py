"""The row of sources that are named by an address (`models/sources/address.py`)."""

from __future__ import annotations

from pathlib import PurePosixPath

from models.files import Hashes
from models.sources.source import Arrival, Fetch, LastIngest, Loaded, Parts, Source


def read(source: Source, fetch: Fetch) -> Loaded:
    """Return the path of the file or folder into which `fetch` has copied it."""
    return Loaded(fetch(source.text), source.text)


def identity(source: Source, _: Hashes, last: Parts | None) -> Parts:
    """Return the version of each file as its server says it, or as of the last ingest; no content is fetched.

    Raises:
        StoreError: It cannot be reached or read.
        DataError: There is nothing to read, or nothing that tells its version.
    """
    from models.sources.picture_folders import check_names, is_of_classes, is_picture
    from models.sources.remote_files import listed

    part = f"address:{source.text}"
    if last is not None:
        return {part: last.get(part)}
    files = listed(source.text)
    names = [PurePosixPath(file.name) for file in files]
    pictures, others = ([name for name in names if is_picture(name) == wanted] for wanted in (True, False))
    if is_of_classes(pictures, others) or (len(names) > 1 and not others):
        check_names(f"data.source {source.text}", names)
    return {part: {file.name: file.version for file in files}}


def growth(source: Source, before: LastIngest, hashes: Hashes, _: float) -> Arrival | None:
    """Return what came or changed since the last ingest.

    Raises:
        StoreError: It cannot be reached or read.
    """
    part = f"address:{source.text}"
    now, earlier = identity(source, hashes, None)[part], before.parts.get(part)
    if now == earlier or earlier is None:
        return None
    new = [name for name in now if now[name] != earlier.get(name)] or ["files went away"]
    text = f"{source.text}: {', '.join(new[:3])}" + (f" and {len(new) - 3} more" if len(new) > 3 else "")
    return Arrival({"before": before.key, "now": now}, text)
