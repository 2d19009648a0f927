"""A source on this machine: a file, or a folder of files."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

from models.errors import DataError, UsageError
from models.files import Hashes
from models.sources.delimiter import PARQUET, SUFFIXES, TEXT
from models.sources.header import header_of
from models.sources.packed import split_part, suffix_of
from models.sources.source import Arrival, Fetch, LastIngest, Loaded, Parts, Source

SETTLE_S = 2.0
COUNTED = (".parquet", ".csv", ".tsv", ".txt")


def path_of(source: Source) -> Path:
    """Return the path that a source names, relative to the folder of the spec; it need not exist.

    Raises:
        RuntimeError: `~` names an unknown user.
    """
    return split_part(_named(source)).file


def _named(source: Source) -> Path:
    """Return the path with the part of the file that it names: `trips.xlsx#May`."""
    return source.base / Path(source.text).expanduser()


def local_path(source: Source) -> Path | None:
    """Return the file or folder that a source names; None if it is not there yet.

    Raises:
        UsageError: It is neither a file nor a folder: reading a pipe or a device would never end.
    """
    try:
        path = path_of(source)
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None  # `check` says so, and ingest
    except (RuntimeError, ValueError, OSError) as error:  # no such user, no such name, links that name each other
        raise UsageError(f"data.source: got {source.text!r}, which cannot be checked: {error}: name a file") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UsageError(f"data.source: {path} is neither a file nor a folder, expected a table: copy it into a file")
    return path


def check(source: Source, is_text: bool) -> None:
    """Refuse a file or folder that is not there, or that no reader takes.

    Raises:
        UsageError: Names the path.
    """
    path = local_path(source)
    if path is None:
        named = path_of(source)
        raise UsageError(f"data.source: {named}: no such file or folder: correct the path, or put the data there")
    try:
        suffix = suffix_of(_named(source))
        if path.is_file() and suffix in (*SUFFIXES, *PARQUET, *TEXT):
            return
        from models.sources import r_data
        from models.sources.folders import data_files, visible_files
        from models.sources.picture_folders import is_picture, picture_table

        if path.is_dir() or suffix not in r_data.SUFFIXES:
            files = data_files(_named(source), is_text=is_text)
            if path.is_dir() and is_picture(files[0]):
                picture_table(path, visible_files(path))
    except DataError as error:
        raise UsageError(f"data.source: {error}") from error


def header(source: Source) -> list[str] | None:
    """Return the columns of a CSV or Parquet file, or of a folder of pictures.

    Raises:
        OSError: The file cannot be read.
    """
    path = local_path(source)
    if path is None or path.is_file():
        return None if path is None else header_of(_named(source))
    from models.sources.picture_folders import CLASS, IMAGE, is_picture

    return [IMAGE, CLASS] if any(map(is_picture, _rows_of(path)[:1])) else None


def read(source: Source, fetch: Fetch) -> Loaded:
    """Return the path."""
    del fetch
    return Loaded(_named(source))


def identity(source: Source, hashes: Hashes, last: Parts | None) -> Parts:
    """Return the hash of the content; None if it is not there."""
    del last  # unchanged files are not read again
    path = path_of(source)
    return {f"file:{source.text}": hashes.of(path.resolve()) if path.exists() else None}


def growth(source: Source, before: LastIngest, hashes: Hashes, now: float) -> Arrival | None:
    """Return what changed since the last ingest; None if nothing did, or if a file is still being written."""
    from models.sources.folders import visible_files

    path = path_of(source).resolve()
    files = visible_files(path) if path.is_dir() else [path]
    if not path.exists() or not files or any(0 <= now - file.stat().st_mtime < SETTLE_S for file in files):
        return None
    digest = hashes.of(path)
    if digest == before.parts.get(f"file:{source.text}"):
        return None
    rows = _num_rows(_rows_of(path) if path.is_dir() else [path])
    fed_back = int(before.result.get("feedback", {}).get("joined", 0))
    num_new = rows - int(before.result["rows"]) + fed_back if rows is not None else None
    text = f"{source.text}: {num_new:+,} rows" if num_new else f"{source.text} has changed"
    return Arrival({"before": before.digest, "now": digest}, text, num_new)


def _rows_of(folder: Path) -> list[Path]:
    """Return the files that are the rows of a folder; none if ingest will refuse it."""
    from models.sources.folders import data_files

    with contextlib.suppress(DataError):
        return data_files(folder)
    return []


def _num_rows(files: list[Path]) -> int | None:
    """Count Parquet rows by footers, rows of plain text by lines, pictures by files; None for others."""
    from models.sources.picture_folders import is_picture
    from models.sources.row_batches import count_rows

    total = 0
    for file in files:
        try:
            if file.suffix not in COUNTED and not is_picture(file):
                return None
            total += count_rows(file)
        except DataError:
            return None
    return total if files else None
