"""A cache of results in a folder, one file for each key of their inputs: written whole, removed if unused for long.

All of it may be deleted at any time; it is made again.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from models.errors import StoreError
from models.files import write_bytes

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")
M = TypeVar("M", bound="BaseModel")


class Format(NamedTuple, Generic[T]):
    """How values of one kind are stored: the files' suffix, and the functions from a file and to bytes."""

    suffix: str
    read: Callable[[Path], T]
    dump: Callable[[T], bytes]


class KeyedCache:
    """The entries of one kind.

    Args:
        folder: The folder with a file or folder for each key.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._used: set[Path] = set()

    def path(self, name: str) -> Path:
        """Return the file or folder of an entry, which may be missing, and mark it as used now."""
        path = self._folder / name
        self._used.add(path)
        with contextlib.suppress(OSError):
            os.utime(path)
        return path

    def get(self, key: str, kind: Format[T], make: Callable[[], T]) -> T:
        """Return the value of a key; a missing or damaged one is made, and stored if the folder can be written."""
        path = self.path(f"{key}{kind.suffix}")
        with contextlib.suppress(OSError, ValueError, EOFError, zipfile.BadZipFile):
            return kind.read(path)
        value = make()
        with contextlib.suppress(OSError, StoreError):  # full or read-only: it is made again next time
            write_bytes(path, kind.dump(value))
        return value

    def prune(self, older_than_s: float) -> None:
        """Remove the entries that this object did not use and that nobody made or used for `older_than_s`."""
        for path in self._folder.glob("[!.]*"):  # hidden files are unfinished
            with contextlib.suppress(OSError):
                if path not in self._used and time.time() - path.stat().st_mtime >= older_than_s:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


JSON: Format[Any] = Format(
    ".json", lambda path: json.loads(path.read_bytes()), lambda value: json.dumps(value).encode()
)


def document(model: type[M]) -> Format[M]:
    """Return the format of a pydantic model: JSON."""
    return Format(
        ".json",
        lambda path: model.model_validate_json(path.read_bytes()),
        lambda record: record.model_dump_json().encode(),
    )


def arrays() -> Format[dict[str, Any]]:
    """Return the format of arrays by name: npz."""
    import numpy as np

    def read(path: Path) -> dict[str, Any]:
        with np.load(path, allow_pickle=False) as stored:
            return dict(stored)

    return Format(".npz", read, lambda value: _saved(np.savez, **value))


def mapped_array() -> Format[Any]:
    """Return the format of one array that is mapped into memory, not read: npy."""
    import numpy as np

    return Format(".npy", lambda path: np.load(path, mmap_mode="r"), lambda value: _saved(np.save, value))


def _saved(save: Callable[..., None], *values: Any, **named: Any) -> bytes:
    content = io.BytesIO()
    save(content, *values, **named)
    return content.getvalue()
