"""What a team's own code opens, lists and imports while it runs: an audit hook of Python sees it.

A step counts by its inputs, and own code may read more of them than its spec names. The hook is set with the first own
code that a process resolves, so processes without any pay nothing. An event counts if the nearest frame on the stack
that is ours or the team's is the team's; frames of libraries are skipped. What own code is called with counts too in
the threads that it starts.

Not seen: what native code opens (Arrow, DuckDB, safetensors, h5py), what another process opens, and a package that an
own `importlib.import_module` finds loaded. The spec's `reads` names such files.

Source: PEP 578, https://docs.python.org/3/library/audit_events.html
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import stat
import sys
import sysconfig
import tempfile
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from models.errors import StoreError
from models.files import read_json, write_json

ROOT = Path(__file__).resolve().parents[2]
Stamp = list[int]
"""Modification time in ns, size and inode of a file."""

_OURS = tuple(f"{ROOT / name}{os.sep}" for name in ("flows", "models", "tasks"))
_INTERPRETER = tuple({f"{os.path.realpath(sysconfig.get_path(name))}{os.sep}" for name in ("stdlib", "platstdlib")})
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_SYSTEM = ("/proc/", "/dev/", "/sys/", "/usr/share/zoneinfo/")
_IMPORTLIB = ("<frozen importlib", f"{os.path.dirname(importlib.__file__)}{os.sep}")  # noqa: PTH120  a prefix of texts
_FINDERS = (*(f"{os.sep}{name}{os.sep}" for name in ("importlib_metadata", "pkg_resources")), f"{os.sep}pkgutil.py")
_LOADING = frozenset({"exec_module", "get_code", "get_data", "source_to_code"})
"""The methods of a loader of modules that open files."""
_FOLDERS = ("os.listdir", "os.scandir")
_OTHERS = ("open", "sqlite3.connect", "ctypes.dlopen", "import", "os.rename", "os.mkdir")
_EVENTS = frozenset((*_FOLDERS, *_OTHERS))


@dataclass
class Reads:
    """What own code read.

    Attributes:
        files: The stamp of each file when it was opened; None if there was none.
        folders: The folders that were listed.
        packages: The installed packages that were imported, by the names that imports use.
        written: What the code itself wrote or made; what it read of it afterwards is in no other field.
    """

    files: dict[str, Stamp | None] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    packages: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.files) + len(self.folders) + len(self.packages) + len(self.written)

    def add(self, other_reads: Reads) -> None:
        """Add what other code, or another process, read; of a file the first stamp counts."""
        self.files = {**other_reads.files, **self.files}
        self.folders |= other_reads.folders
        self.packages |= other_reads.packages
        self.written |= other_reads.written

    def has_written(self, path: str) -> bool:
        """Return whether the code wrote the file, or made a folder above it."""
        return path in self.written or any(path.startswith(f"{folder}{os.sep}") for folder in self.written)

    def changed(self) -> list[str]:
        """Return the files that are not as they were when they were opened, but for what the code itself wrote."""
        return [path for path, seen in self.files.items() if path not in self.written and stamp_of(path) != seen]


_extents: list[Reads] = []
"""What is being collected now: of each open `collecting` and `crediting` of this process."""
_memory: dict[str, Reads] = {}
_own_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_other_threads: set[threading.Thread] = set()
"""While own code is called: the threads that began before."""
_uncounted = threading.local()
_own_packages: set[str] = set()
_owners: dict[str, bool | None] = {}
_is_watching = False


def watch(module: str | None) -> None:
    """Watch the own code of this process from now on.

    Args:
        module: The file of own code; None if it has none. In an installed package all of the package is own code.
    """
    global _is_watching
    if module and any(part in module for part in _INSTALLED):
        _own_packages.add(_top_of(module)[0])
        _owners.clear()
    if not _is_watching:
        _is_watching = True
        sys.addaudithook(_hook)


def is_watching() -> bool:
    """Return True if own code was loaded in this process."""
    return _is_watching


@contextlib.contextmanager
def collecting() -> Iterator[Reads]:
    """Collect what own code of this process reads within the block, and what `credit` adds."""
    reads = Reads()
    _extents.append(reads)
    try:
        yield reads
    finally:
        _extents[:] = [extent for extent in _extents if extent is not reads]


@contextlib.contextmanager
def crediting(name: str, *, is_import: bool = False) -> Iterator[None]:
    """Credit what is read within the block, and what was read within an earlier one of the same name.

    A module, and a function with a cache, reads a file once in a process, for all steps that use it there. Where
    nothing collects, as in a server, only imports are noted.
    """
    if not _extents and not is_import:
        yield
        return
    with collecting() as reads, _threads_watched():
        try:
            yield
        finally:
            _memory.setdefault(name, Reads()).add(reads)
    if len(_memory[name]):
        credit(_memory[name])


@contextlib.contextmanager
def _threads_watched() -> Iterator[None]:
    """Count the threads that begin within the block as own code's: on their stacks may be frames of libraries alone.

    Python tells the hook of a new thread from 3.12 on.
    """
    before = {*threading.enumerate()} - {*_own_threads}
    is_outermost = not _other_threads
    if is_outermost:
        _other_threads.update(before)
    try:
        yield
    finally:
        if is_outermost:
            _own_threads.update({*threading.enumerate()} - {*_other_threads})
            _other_threads.clear()


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Count nothing that this thread reads within the block, such as own code that decides no result."""
    _uncounted.since = True
    try:
        yield
    finally:
        del _uncounted.since


def credit(reads: Reads) -> None:
    """Count what another process read."""
    for extent in _extents:
        extent.add(reads)


@contextlib.contextmanager
def saving(path: Path) -> Iterator[Reads]:
    """Collect what is read within the block, and save it at its end, also after an error; earlier attempts count."""
    with collecting() as reads:
        reads.add(_saved(path))
        try:
            yield reads
        finally:
            save(reads, path)


def save(reads: Reads, path: Path) -> None:
    """Save what was read, if there is any; a failure is harmless where the disk fails all else too."""
    if len(reads):
        with contextlib.suppress(StoreError):
            files = dict(sorted(reads.files.items()))
            sets = {name: sorted(getattr(reads, name)) for name in ("folders", "packages", "written")}
            write_json(path, {"files": files, **sets})


def load(folder: Path) -> Reads:
    """Return all that was saved in a folder and below: by each process, at each attempt."""
    reads = Reads()
    for path in sorted(folder.rglob(file_name("*"))):
        reads.add(_saved(path))
    return reads


def _saved(path: Path) -> Reads:
    saved = read_json(path)
    return Reads(saved.get("files", {}), *(set(saved.get(name, ())) for name in ("folders", "packages", "written")))


def file_name(process: str) -> str:
    """Return the name of the file with what a process read."""
    return f".reads-{process}.json"


def stamp_of(path: str) -> Stamp | None:
    """Return the stamp of a file; None if there is no such file."""
    with contextlib.suppress(OSError, ValueError):
        seen = os.stat(path)  # noqa: PTH116  on the path of each file that own code opens
        if stat.S_ISREG(seen.st_mode):
            return [seen.st_mtime_ns, seen.st_size, seen.st_ino]
    return None


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event not in _EVENTS or not _extents or hasattr(_uncounted, "since"):
        return
    caller = inspect.currentframe()
    frame = caller.f_back if caller else None
    if frame is not None and _is_of_own_code(frame):
        _note(event, args, frame)


def _note(event: str, args: tuple[Any, ...], frame: FrameType) -> None:
    if event in _FOLDERS:
        path, lister = _path_of("." if args[0] is None else args[0]), frame.f_code.co_filename
        is_search = path in sys.path and any(part in lister for part in _FINDERS)
        if not is_search and not lister.startswith(_IMPORTLIB):  # an import looks for its module
            _note_folder(path)
    elif event == "os.mkdir":
        if not os.path.isdir(path := _path_of(args[0])):  # noqa: PTH112  asked for with `exist_ok`, and nothing made
            _note_written(path)
    elif event == "os.rename":
        if any(_path_of(args[0]) in reads.written for reads in _extents):
            _note_written(_path_of(args[1]))
    elif event == "open":
        _note_open(_path_of(args[0]), args[2] if isinstance(args[2], int) else 0, frame)
    elif event == "sqlite3.connect":
        _note_file(path := _path_of(args[0]))
        if "mode=ro" not in str(args[0]):  # what SQLite writes itself is not seen
            _note_written(path)
    else:
        _note_file(_path_of(args[1] if event == "import" else args[0]))


def _is_of_own_code(frame: FrameType | None) -> bool:
    while frame is not None:
        is_own = _is_own(frame.f_code.co_filename)
        if is_own is not None:
            return is_own
        frame = frame.f_back
    thread = threading.current_thread()
    return thread in _own_threads or bool(_other_threads and thread not in _other_threads)


def _is_own(file: str) -> bool | None:
    """Return whether the code of a file is the team's; None for a library's."""
    if file not in _owners:
        is_library = file.startswith(("<", *_INTERPRETER)) or any(part in file for part in _INSTALLED)
        is_package = any(file.startswith(package) for package in _own_packages)
        _owners[file] = False if file.startswith(_OURS) else True if is_package else None if is_library else True
    return _owners[file]


def _path_of(path: object) -> str:
    """Return an absolute path; empty for a descriptor, a database in memory and a library without a path."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    text = os.fsdecode(path) if isinstance(path, str | bytes) else ""
    if text.startswith("file:"):  # SQLite's address of a file
        text = text.removeprefix("file:").partition("?")[0]
    return "" if text in ("", ":memory:") else os.path.abspath(text)  # noqa: PTH100  resolves no link


def _note_open(path: str, flags: int, frame: FrameType) -> None:
    if path.endswith(".pyc"):
        with contextlib.suppress(ValueError):
            path = importlib.util.source_from_cache(path)
    mode = flags & os.O_ACCMODE
    if any(part in path for part in _INSTALLED):
        if _imports_itself(frame):
            package = _top_of(path)[1]
            for reads in _extents:
                reads.packages.add(package)
        return
    makes = flags & os.O_CREAT and stamp_of(path) is None
    if mode != os.O_WRONLY and not flags & os.O_TRUNC and not makes:
        _note_file(path)
    if (mode != os.O_RDONLY or flags & os.O_CREAT) and not os.path.isdir(path):  # noqa: PTH112  of a nameless file
        _note_written(path)


def _imports_itself(frame: FrameType | None) -> bool:
    """Return whether own code, and no library for it, is importing now; a library may bring the loader, as beartype."""
    is_import = False
    while frame is not None and (
        frame.f_code.co_filename.startswith(_IMPORTLIB)
        or (frame.f_code.co_name in _LOADING and _is_own(frame.f_code.co_filename) is None)
    ):
        frame, is_import = frame.f_back, True
    return is_import and frame is not None and bool(_is_own(frame.f_code.co_filename))


def _top_of(path: str) -> tuple[str, str]:
    """Return the path and the name of the package or module at the top of an installed file."""
    part = next(part for part in _INSTALLED if part in path)
    site, _, inner = path.rpartition(part)
    top = inner.partition(os.sep)[0]
    return f"{site}{part}{top}", top.partition(".")[0]


def _note_file(path: str) -> None:
    if not path or path.startswith((*_SYSTEM, *_OURS, *_INTERPRETER)):
        return
    seen = stamp_of(path)
    if seen is None and (path in sys.path or os.path.exists(path)):  # noqa: PTH110  Python's archive; a folder, a pipe
        return
    for reads in _extents:
        if path not in reads.files and not reads.has_written(path):
            reads.files[path] = seen


def _note_written(path: str) -> None:
    if path and not path.startswith(_SYSTEM):
        for reads in _extents:
            reads.written.add(path)


def _note_folder(path: str) -> None:
    inside = f"{path}{os.sep}"
    is_library = inside.startswith((*_SYSTEM, *_INTERPRETER)) or any(part in inside for part in _INSTALLED)
    if path and not is_library and path != tempfile.gettempdir():
        for reads in _extents:
            if not reads.has_written(path):
                reads.folders.add(path)
