"""Plain text as a raw table: one row for each line, in the order of the files and of the lines."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from models.errors import DataError
from models.sources.delimiter import suffix_of

SUFFIXES = (".txt", ".text")


def is_text_file(path: Path) -> bool:
    """Return True for `.txt` and `.text`, also gzipped."""
    return suffix_of(path) in SUFFIXES


def text_files(folder: Path) -> list[Path]:
    """Return the text files under a folder, sorted by path."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and is_text_file(path))


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


def _lines(path: Path) -> list[str]:
    content = _content(path)
    if not content.strip():
        raise DataError(f"{path}: got no text ({len(content)} bytes), expected some: is it the right file?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path}:{line}: byte 0x{content[error.start]:02x} at offset {error.start} is not UTF-8: save the file as "
            "UTF-8, or convert it: iconv -f latin1 -t utf-8"
        ) from error
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def _content(path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be unpacked ({error}): it was cut short or is no gzip; copy it again"
        ) from error
