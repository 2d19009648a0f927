"""The source that a spec names: is it there, and is it what can be read? Nothing of it is read here."""

from __future__ import annotations

import contextlib
import re
import stat
from pathlib import Path

from models.errors import DataError, UsageError
from models.project_spec.blocks import Data
from models.project_spec.references import local_source
from models.sources.delimiter import PARQUET, SUFFIXES, TEXT, suffix_of
from models.sources.header import header_of
from models.validation.expectation_arguments import check_expectations


def local_path(source: str, base: Path) -> Path | None:
    """Return the file or folder that a source names; None where it is none of this machine, or not there yet.

    Raises:
        UsageError: It is an address, or neither a file nor a folder: reading a pipe or a device would never end.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", source):
        raise UsageError(
            f"data.source: got {source!r}, expected a file, a folder, a package (pypi:, npm:, debian:) or your own "
            "function `./source.py:load`, which may fetch it"
        )
    try:
        path = local_source(source, base)
        if path is None:
            return None
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None  # `check_source` says so, and ingest
    except (RuntimeError, ValueError, OSError) as error:  # no such user, no such name, links that name each other
        raise UsageError(f"data.source: got {source!r}, which cannot be checked: {error}: name a file") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UsageError(f"data.source: {path} is neither a file nor a folder, expected a table: copy it into a file")
    return path


def check_source(data: Data, base: Path) -> None:
    """Refuse a source of this machine that is not there, that no reader takes, or that lacks a column of expectations.

    A loop does not ask this: it records at ingest that the source was away, and rejects its rows without the column.

    Args:
        data: The spec's `data` block.
        base: The folder of the spec.

    Raises:
        UsageError: There is no such file or folder, or it is none that can be read.
        DataError: An expectation names a column that a file does not have.
    """
    path = local_path(data.source, base)
    if path is None:
        named = local_source(data.source, base)
        if named is not None:
            raise UsageError(f"data.source: {named}: no such file or folder: correct the path, or put the data there")
        return
    if path.is_dir():
        from models.sources.folders import data_files

        try:
            data_files(path, is_text=data.kind == "text")
        except DataError as error:
            raise UsageError(f"data.source: {error}") from error
    elif suffix_of(path) not in (*SUFFIXES, *PARQUET, *TEXT):
        from models.sources import r_data
        from models.sources.folders import READABLE

        if path.suffix.lower() not in r_data.SUFFIXES:
            kind = path.suffix or "nameless"
            raise UsageError(f"data.source: {path}: got a {kind} file, expected {READABLE}: convert it")
    elif data.expectations and data.kind != "text":
        with contextlib.suppress(OSError):  # ingest says what is wrong with the file
            check_expectations(data.expectations, header_of(path))
