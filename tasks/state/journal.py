"""Append-only files of JSON lines. A torn line of a killed writer is skipped."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from models.files import storing

TAIL_BYTES = 256 * 1024


def append(path: Path, line: Mapping[str, Any], *, synced: bool = True) -> None:
    """Append a line. `synced`: the line is on disk on return, which costs some milliseconds.

    Raises:
        StoreError: The disk is full or the folder is not writable.
    """
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            torn = file.tell() and not _ends_with_newline(file)
            text = json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n"
            file.write(b"\n" + text if torn else text)  # a torn line stands alone and is skipped
            if synced:
                file.flush()
                os.fsync(file.fileno())


def read(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the complete lines from byte `offset` on, and the offset after them; torn lines are skipped."""
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    return list(_entries(whole.splitlines())), offset + len(whole)


def newest(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the last lines, newest first, from the last TAIL_BYTES of the file: for readers that need few lines."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return
    yield from _entries(reversed(lines[1:] if size > TAIL_BYTES else lines))


def _entries(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for text in lines:
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            if isinstance(line, dict):
                yield line


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, 2)
    return bool(file.read(1) == b"\n")
