"""Plain text as a raw table: one row for each line, in the order of the files and of the lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from models.errors import DataError
from models.sources.delimiter import TEXT
from models.sources.folders import visible_files
from models.sources.packed import open_unpacked, suffix_of

LINE_BYTES = 64 << 20
"""A longer line is refused: it would be in memory as a whole."""


def is_text_file(path: Path) -> bool:
    """Return True for `.txt` and `.text`, also gzipped."""
    return suffix_of(path) in TEXT


def text_files(folder: Path) -> list[Path]:
    """Return the text files under a folder, sorted by path."""
    return [path for path in visible_files(folder) if is_text_file(path)]


def read_text(path: Path) -> pa.Table:
    """Return the lines of a text file, or of all text files of a folder: `file`, `line` (from 1) and `text`.

    Lines end with a line feed, with or without a carriage return before it; a byte order mark is removed.

    Raises:
        DataError: A file is empty, not UTF-8 or cut short.
    """
    files = text_files(path) if path.is_dir() else [path]
    return pa.concat_tables(table_of(str(file.relative_to(path.parent)), _lines(file)) for file in files)


def table_of(file: str, lines: Iterable[str]) -> pa.Table:
    """Return one file's lines as rows."""
    text = pa.array(lines, pa.string())
    columns = {
        "file": pa.array([file] * len(text), pa.string()),
        "line": pa.array(range(1, len(text) + 1), pa.int64()),
        "text": text,
    }
    return pa.table(columns)


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, see `read_text`.

    Raises:
        DataError: It is not UTF-8 or cut short.
    """
    offset = 0
    with open_unpacked(path) as file:
        for number in itertools.count(1):
            line = file.readline(LINE_BYTES)
            if not line:
                return
            if len(line) == LINE_BYTES:
                raise DataError(
                    f"{path}:{number}: the line has {LINE_BYTES >> 20} MiB or more, expected text: name the right "
                    "file, or break its lines"
                )
            text = _decoded(line, path, number, offset)
            offset += len(line)
            yield text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def _lines(path: Path) -> list[str]:
    lines = list(text_lines(path))
    if not any(line.strip() for line in lines):
        raise DataError(f"{path}: got no text ({path.stat().st_size} bytes), expected some: is it the right file?")
    return lines


def _decoded(line: bytes, path: Path, number: int, offset: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}: byte 0x{error.object[error.start]:02x} at offset {offset + error.start} is not UTF-8: "
            "save the file as UTF-8, or convert it: iconv -f latin1 -t utf-8"
        ) from error
