"""Atomic writes and reads of files, hashes of files, and a cache of hashes by stat."""

from __future__ import annotations

import ast
import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from models.errors import StoreError, one_line

SPEC_FILE = "project.yaml"
CHUNK_BYTES = 1 << 20
FILE_MODE = 0o644
DISK_IS_FULL = "the disk is full: free some space and run again"
CURES = {
    errno.ENOSPC: DISK_IS_FULL,
    errno.EDQUOT: "the disk quota is used up: free some space and run again",
    errno.EROFS: "the file system is read-only: set LOOPLINE_HOME to a folder that can be written",
    errno.ENOTDIR: "a file lies where a folder is expected: move it away, or set LOOPLINE_HOME",
    errno.EEXIST: "a file lies where a folder is expected: move it away, or set LOOPLINE_HOME",
    errno.ENAMETOOLONG: "the name is too long for this file system: shorten it",
    errno.EACCES: "this user may not read or write it: change its owner or mode, or set LOOPLINE_HOME",
    errno.EFBIG: "the file would be larger than this system lets it be: raise the limit (`ulimit -f`) and run again",
    errno.EMFILE: "this process has too many files open: raise the limit (`ulimit -n`) and run again",
}
PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE)
"""What another process can end meanwhile; the others last until a person acts."""
CLOCK_TICK_NS = 20_000_000  # twice the coarsest tick (10 ms) of file system timestamps
_parsing = threading.Lock()
T = TypeVar("T")


def write_text(path: Path, text: str) -> None:
    """Write `text` atomically: `path` holds either all of it or its old content.

    Raises:
        StoreError: The disk is full or the folder is not writable.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` atomically: `path` holds either all of it or its old content.

    Raises:
        StoreError: The disk is full or the folder is not writable.
    """
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_hidden(path), suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), FILE_MODE)  # mkstemp sets 0600, but other users may read this file
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON with sorted keys, atomically."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; an empty dict if the file is missing or not valid."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def read_python(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file; threads parse one after the other.

    Before Python 3.11.8 two threads that parse at once can end each other: "AST constructor recursion depth mismatch".

    Raises:
        SyntaxError: Or ValueError, if it is no Python.
        OSError: It cannot be read.

    Source: https://github.com/python/cpython/issues/106905
    """
    source = path.read_bytes()
    with _parsing:
        return ast.parse(source)


def sync(path: Path) -> None:
    """Force a file's content, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Convert the operating system's errors to a StoreError that names the fix."""
    try:
        yield
    except OSError as error:
        if error.errno in CURES:
            raise store_error(error, path) from error
        raise


def lasts(error: StoreError) -> bool:
    """Return whether the operating system's error behind a StoreError stays until a person acts."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in CURES and cause.errno not in PASSING


def store_error(error: OSError, path: Path) -> StoreError:
    """Return an operating system's error of `CURES` as a StoreError that names the fix.

    Args:
        error: The error.
        path: The path for the message, if the error names none.
    """
    return StoreError(f"{one_line(error.filename or path)}: {CURES[error.errno or 0]}")


@contextlib.contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `folder` if the block succeeds and is removed if it fails."""
    with storing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=_hidden(folder), suffix=".tmp"))
        try:
            yield temporary
            if folder.exists():
                shutil.rmtree(folder)
            temporary.chmod(0o755)
            temporary.replace(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _hidden(path: Path) -> str:
    """Return the name prefix of an unfinished file; its pid shows whether the writer is dead and the file useless."""
    return f".{path.name}.{os.getpid()}-"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file; for a folder, of the sorted (relative name, SHA-256) of its files.

    Cost: reads every byte; about 1.5 s for 1 GB.
    """
    digest = hashlib.sha256()
    if path.is_dir():
        for inner in sorted(file for file in path.rglob("*") if file.is_file()):
            digest.update(f"{inner.relative_to(path).as_posix()}\0{sha256(inner)}\n".encode())
        return digest.hexdigest()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


class Hashes:
    """Hashes of files, cached while device, inode, size and modification times stay the same.

    As in git's index, an entry counts only if the file last changed before this cache was written: a file that may have
    changed again within the same clock tick is read again.
    """

    def __init__(self, memory: Path) -> None:
        self._path = memory
        self._known = {name: seen for name, seen in read_json(memory).items() if isinstance(seen, list)}
        self._written_ns = 0
        self._changed = False
        with contextlib.suppress(OSError):
            self._written_ns = memory.stat().st_mtime_ns

    def of(self, path: Path) -> str:
        """Return the `sha256` of a file or folder; only changed files are read again."""
        if not path.is_dir():
            return self._of_file(path)
        digest = hashlib.sha256()
        for inner in sorted(file for file in path.rglob("*") if file.is_file()):
            digest.update(f"{inner.relative_to(path).as_posix()}\0{self._of_file(inner)}\n".encode())
        return digest.hexdigest()

    def save(self) -> None:
        """Save the cache; a failure is harmless and only costs time later."""
        if self._changed:
            with contextlib.suppress(OSError, StoreError):
                write_text(self._path, json.dumps(self._known))
            self._changed = False

    def _of_file(self, path: Path) -> str:
        stat = path.stat()
        seen = [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        cached = self._known.get(str(path))
        if cached and cached[:-1] == seen and stat.st_ctime_ns + CLOCK_TICK_NS < self._written_ns:
            return str(cached[-1])
        digest = sha256(path)
        self._known[str(path)] = [*seen, digest]
        self._changed = True
        return digest


class ParsedFiles(Generic[T]):
    """What files hold, read again only after a change: for a process that asks again and again.

    As `Hashes` does, it trusts no file that may change once more within the clock's tick.

    Args:
        most: The number of files of which it is kept.
    """

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._parsed: dict[Path, tuple[tuple[int, ...], T]] = {}

    def of(self, path: Path, parse: Callable[[], T]) -> T:
        """Return what `parse` makes of a file, or made of it when it was the same."""
        state: tuple[int, ...] = ()
        is_settled = False
        with contextlib.suppress(OSError):  # `parse` says what is wrong
            stat = path.stat()
            state = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            is_settled = stat.st_ctime_ns + CLOCK_TICK_NS < time.time_ns()
        seen = self._parsed.get(path)
        if seen and seen[0] == state:
            return seen[1]
        parsed = parse()
        if is_settled:
            self._parsed[path] = (state, parsed)
            while len(self._parsed) > self._most:
                self._parsed.pop(next(iter(self._parsed), path), None)
        return parsed

    def clear(self) -> None:
        """Forget all."""
        self._parsed.clear()


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `path` if the block succeeds and is removed if it fails.

    Raises:
        StoreError: The disk is full or the folder is not writable; no file is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
