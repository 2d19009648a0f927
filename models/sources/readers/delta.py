"""Delta tables that others wrote: of their files only those count that the log names in its newest version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from models.errors import DataError, one_line

LOG = "_delta_log"


def is_delta(folder: Path) -> bool:
    """Return whether a folder is a Delta table."""
    return next((folder / LOG).glob("*.json"), None) is not None


def delta_files(folder: Path) -> list[Path]:
    """Return the files of a Delta table's newest version, sorted.

    Raises:
        DataError: Its log cannot be read, or says what no reader here understands.
    """
    with _reading(folder) as table:
        table.to_pyarrow_dataset()  # refuses what a reader of plain files would get wrong, such as deletion vectors
        return sorted(folder / _below(uri, folder) for uri in table.file_uris())


def read_delta(folder: Path) -> pa.Table:
    """Return the rows of a Delta table's newest version, with the types of its schema.

    Raises:
        DataError: It cannot be read.
    """
    with _reading(folder) as table:
        return table.to_pyarrow_dataset().to_table()


@contextmanager
def _reading(folder: Path) -> Iterator[Any]:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        yield DeltaTable(folder.resolve())
    except (DeltaError, pa.ArrowException, OSError) as error:
        cure = "copy the whole table with its log, or write it again without the features that are named"
        raise DataError(f"{folder}: not readable as a Delta table ({one_line(error, 200)}): {cure}") from error


def _below(uri: str, folder: Path) -> str:
    """Return a file's path relative to the table's folder."""
    path = uri.removeprefix("file://")
    for text in (path, unquote(path)):
        if (file := Path(text)).exists():
            return str(file.relative_to(folder.resolve()))
    raise OSError(f"{path} is named by the log, and is not there")
