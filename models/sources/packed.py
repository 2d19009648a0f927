"""The suffix and content of a file that may be compressed, or of a part of a file: `a.csv.zst`, `a.xlsx#May`."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from models.errors import DataError, one_line
from models.sources.delimiter import SUFFIXES, TEXT, delimiter_in

_HEADER_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 20
_WITH_PARTS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".zip")
"""Suffixes of files that hold several tables, of which one is named behind a `#`."""
_PART = re.compile(rf"(?P<file>.*(?:{'|'.join(map(re.escape, _WITH_PARTS))}))#(?P<part>.+)", re.IGNORECASE | re.DOTALL)
_LINES, _ARRAY = (".jsonl", ".ndjson"), (".json",)
_IN_ARCHIVES = (SUFFIXES, _LINES, _ARRAY, TEXT)
"""Formats of text that an archive may hold; the first of which it has files counts, as in a folder."""


class FilePart(NamedTuple):
    """A file, and the sheet or member of it that is read; empty for the only one."""

    file: Path
    part: str


def split_text(text: str) -> tuple[str, str]:
    """Return a path or address, and the part behind its `#`."""
    match = _PART.fullmatch(text) if "#" in text else None
    return (match["file"], match["part"]) if match else (text, "")


def split_part(path: Path) -> FilePart:
    """Return the file of a path, and the part behind its `#`."""
    file, part = split_text(str(path))
    return FilePart(Path(file), part) if part else FilePart(path, "")


def suffix_of(path: Path) -> str:
    """Return `.csv` for `a.csv`, `a.CSV`, `a.csv.gz` and a zip archive of one CSV.

    Raises:
        DataError: An archive is damaged, or does not hold one table.
    """
    file = split_part(path).file
    kind = file.suffix.lower()
    if kind == ".zip" and file.is_file():
        return PurePosixPath(_member_of(path)).suffix.lower()
    return (file.with_suffix("") if kind in _OPENERS else file).suffix.lower()


def is_packed(path: Path) -> bool:
    """Return whether a file is compressed or an archive."""
    return split_part(path).file.suffix.lower() in _OPENERS


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file for reading; a compressed one as what it was before.

    Raises:
        OSError: It cannot be opened.
        DataError: An archive does not hold one table; reads raise it if the file is damaged or was cut short.
    """
    opener = _OPENERS.get(split_part(path).file.suffix.lower())
    return path.open("rb") if opener is None else io.BufferedReader(_Unpacked(path, opener), _BUFFER_BYTES)


def arrow_input(path: Path) -> Any:
    """Return what Arrow's readers of text take: a path, or what is in a compressed file, open for reading."""
    return open_unpacked(path) if is_packed(path) else str(path)


def first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed.

    Raises:
        OSError: The file cannot be read.
        DataError: It is compressed, and damaged or cut short.
    """
    with open_unpacked(path) as file:
        return file.read(_HEADER_BYTES)


def delimiter_of(path: Path) -> str:
    """Return a tab for a .tsv file, for a .csv file the separator in its header; in doubt a comma.

    Raises:
        OSError: The file cannot be read.
        DataError: It is compressed, and damaged or cut short.
    """
    if suffix_of(path) == ".tsv":
        return "\t"
    return delimiter_in(first_bytes(path))


class _Unpacked(io.RawIOBase):
    """A decompressed stream whose every failure is an error with the file's name and the cure."""

    def __init__(self, path: Path, opener: Callable[[Path], Any]) -> None:
        self._path = path
        self._stream = opener(path)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; return the number of bytes, 0 at the end."""
        try:
            content: bytes = self._stream.read(len(buffer))
        except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
            reason = f"cannot be unpacked ({one_line(error)}): it was cut short or is of another format; copy it again"
            raise DataError(f"{self._path}: {reason}") from error
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        super().close()


def _zstandard(path: Path) -> Any:
    import pyarrow as pa  # Python has Zstandard from 3.14 on

    return pa.input_stream(str(path), compression="zstd")


def _open_member(path: Path) -> Any:
    with zipfile.ZipFile(split_part(path).file) as archive:
        return archive.open(_member_of(path))  # it stays open until the member is closed


_OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _zstandard,
    ".zip": _open_member,
}


def _member_of(path: Path) -> str:
    """Return the name of the table in a zip archive: the one behind the `#`, or the only one.

    Raises:
        DataError: It is no archive, encrypted, or holds no table of text, or several.
    """
    file, wanted = split_part(path)
    try:
        with zipfile.ZipFile(file) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{file}: not readable as a zip ({one_line(error)}): copy or make it again") from error
    names = [member.filename for member in members if not _is_hidden(member.filename)]
    tables = next((some for kind in _IN_ARCHIVES if (some := [name for name in names if _is_of(name, kind)])), [])
    if wanted and wanted not in names:
        raise DataError(f"{file}: holds no {wanted!r}, only {_listed(names)}: correct the name behind the #")
    if not tables:
        raise DataError(
            f"{file}: holds {_listed(names)}, expected one file of CSV, JSON or text: unpack it, and name what is in it"
        )
    if len(tables) > 1 and not wanted:
        raise DataError(f"{file}: holds several tables, {_listed(tables)}: name one, {file.name}#{tables[0]}")
    member = wanted or tables[0]
    if any(part.filename == member and part.flag_bits & 1 for part in members):
        raise DataError(f"{file}: {member} is encrypted: unpack it with its password, and name the file")
    return member


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in PurePosixPath(name).parts)


def _is_of(name: str, kind: tuple[str, ...]) -> bool:
    return PurePosixPath(name).suffix.lower() in kind


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more if names else "no file"
