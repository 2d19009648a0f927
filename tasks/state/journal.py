"""Append-only logs of JSON lines, for people: swaps of a server, records that could not be read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.files import storing


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Append a line; it is on the disk on return.

    Raises:
        StoreError: The disk is full or the folder is not writable.
    """
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            torn = file.tell() and not _ends_with_newline(file)
            text = json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n"
            file.write(b"\n" + text if torn else text)  # the torn line of a killed writer stands alone
            file.flush()
            os.fsync(file.fileno())


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, 2)
    return bool(file.read(1) == b"\n")
