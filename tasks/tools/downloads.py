"""Copies of what lies at an address, in the workspace's cache: whole, of one version, continued where one broke off."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from models.errors import DataError, StoreError
from models.files import read_json, storing, write_bytes, write_json
from models.sources.packed import split_text
from models.sources.remote_files import RemoteFile, file_system, listed, reaching
from tasks.host.locks import FOREVER_S, held

RANGE_BYTES = 8 << 20
SAVED_S = 2.0
"""Seconds between two notes of which files have come."""
MOST_TOGETHER = 64
"""Files below `RANGE_BYTES` / 32 are fetched together, as many at a time."""
TRIES = 3
_PAGES = (b"<!doctype html", b"<html")


def download(text: str, cache: Path) -> Path:
    """Return the copy of a file, or of a folder's files below one folder; a file that is here in its version stays.

    Args:
        text: The address.
        cache: The folder of all copies.

    Raises:
        StoreError: It cannot be reached or read; what has come of a file is kept, and the next call goes on with it.
        DataError: It changed while it was read, or is a page of HTML.
    """
    text, part = split_text(text)
    place = cache / "addresses" / hashlib.sha256(text.encode()).hexdigest()[:16]
    with held(place.with_suffix(".lock"), lambda: f"{place}: in use", FOREVER_S), storing(place):
        files = listed(text)
        data, stamps = place / "data", place / "versions.json"
        have = read_json(stamps)
        have = {name: version for name, version in have.items() if (data / name).is_file()}
        system, _ = file_system(text)
        missing = [file for file in files if have.get(file.name) != file.version]
        saved = time.monotonic()
        try:
            for fetched in _fetched(system, text, missing, place):
                have |= {file.name: file.version for file in fetched}
                if time.monotonic() > saved + SAVED_S:
                    write_json(stamps, have)
                    saved = time.monotonic()
        finally:
            write_json(stamps, have)
        for gone in have.keys() - {file.name for file in files}:
            (data / gone).unlink()
        now = {file.name: file.version for file in files}
        write_json(stamps, now)
        if {file.name: file.version for file in listed(text)} != now:
            stamps.unlink()  # a file may be half of one version and half of the other
            raise DataError(f"data.source {text}: it changed while it was read: run again when it is written whole")
        shutil.rmtree(place / "parts", ignore_errors=True)
    copy = data / files[0].name if len(files) == 1 and "/" not in files[0].name else data
    return copy.with_name(f"{copy.name}#{part}") if part else copy


def _fetched(system: Any, text: str, files: Sequence[RemoteFile], place: Path) -> Iterator[list[RemoteFile]]:
    """Copy files, and yield those that are here; small ones are asked for together, since an answer takes its time."""
    small: list[RemoteFile] = []
    for file in files:
        if file.size is None or file.size > RANGE_BYTES // 32:
            _fetch(system, text, file, place)
            yield [file]
            continue
        small.append(file)
        if len(small) == MOST_TOGETHER:
            yield _fetch_small(system, text, small, place)
            small = []
    if small:
        yield _fetch_small(system, text, small, place)


def _fetch_small(system: Any, text: str, files: list[RemoteFile], place: Path) -> list[RemoteFile]:
    """Copy whole files in one go; those that did not come whole are copied one by one, which says what is wrong."""
    contents: dict[str, bytes] = {}
    with contextlib.suppress(StoreError), reaching(text):
        contents = system.cat([file.path for file in files], on_error="omit")
    for file in files:
        content = contents.get(file.path, b"")
        if len(content) != file.size or content[:64].lstrip().lower().startswith(_PAGES):
            _fetch(system, text, file, place)
        else:
            write_bytes(place / "data" / file.name, content)
    return files


def _fetch(system: Any, text: str, file: RemoteFile, place: Path) -> None:
    """Copy a file by ranges into a part file of its version, and move it to its place once it is whole."""
    part = place / "parts" / hashlib.sha256(f"{file.name} {file.version}".encode()).hexdigest()[:16]
    target = place / "data" / file.name
    for folder in (part.parent, target.parent):
        folder.mkdir(parents=True, exist_ok=True)
    if file.size is None:
        with reaching(text):
            system.get_file(file.path, str(part))
    else:
        with part.open("ab") as written:
            while (start := written.tell()) < file.size:
                content = _range(system, text, file, start)
                written.write(content)
                written.flush()
    with part.open("rb") as first:
        if first.read(64).lstrip().lower().startswith(_PAGES):
            part.unlink()
            raise DataError(
                f"data.source {text}: got a page of HTML, expected a table: open it in a browser to see why"
            )
    part.replace(target)


def _range(system: Any, text: str, file: RemoteFile, start: int) -> bytes:
    """Return the next bytes of a file, and all of them from a server that knows no ranges; tries some times."""
    size = file.size or 0
    end = min(start + RANGE_BYTES, size)
    trouble: StoreError | None = None
    for _ in range(TRIES):
        try:
            with reaching(text):
                content: bytes = system.cat_file(file.path, start=start, end=end)
        except StoreError as error:
            trouble = error
            continue
        if len(content) == end - start:
            return content
        if len(content) == size:
            return content[start:]
        trouble = StoreError(f"data.source {text}: got {len(content):,} bytes, expected {end - start:,}")
    progress = f"{start:,} of {size:,} bytes are here, and the next run goes on with them"
    raise StoreError(f"{trouble}; {progress}") from trouble
