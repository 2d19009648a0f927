"""Cache keys: a step's key is a hash over named parts, which are all inputs that its result depends on.

Parts keep their names so that a plan can show *which* input changed.
"""

from __future__ import annotations

import ast
import contextlib
import fnmatch
import functools
import hashlib
import importlib.util
import itertools
import json
import os
import sys
import sysconfig
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from models.errors import StoreError
from models.files import read_json, read_python, sha256, write_text

PACKAGES = ("models", "tasks")
ROOT = Path(__file__).resolve().parents[2]
# Edits of these modules change messages or storage locations, never results.
MACHINERY = (
    "tasks.host",
    "tasks.state",
    "tasks.ranks",
    "tasks.loop",
    "tasks.prefect",
    "tasks.platform",
    "tasks.mlflow.client",
    "tasks.mlflow.delivery",
    "tasks.mlflow.embedded_store",
    "tasks.mlflow.lost_store",
    "tasks.mlflow.mlflow_server",
    "tasks.mlflow.registry_reader",
    "tasks.tools.dvc_view",
)
DECIDING = ("tasks.loop.champion", "tasks.loop.origin")
"""Modules under MACHINERY that do decide results: the registry that a step changes, and its initial weights."""
SILENT_MODULES = frozenset(
    {
        "models.errors",
        "models.project_spec.blocks",
        "models.project_spec.block",
        "models.project_spec.data",
        "models.project_spec.goal",
        "models.project_spec.judge",
        "models.project_spec.methods",
        "models.project_spec.serve",
        "models.project_spec.reader",
        "models.project_spec.search",
        "models.files",
        "models.pipeline.records",
    }
)

Parts = dict[str, Any]
READ, PACKAGE = "read:", "package:"
"""Prefixes of the parts that no spec names: what own code was seen to read and to import when the step ran."""
_OURS = ("", "flows", "models", "tasks")
_SITES = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages, which stand side by side there and do not belong together."""
_STATEMENTS = ("body", "orelse", "finalbody", "handlers", "cases")
"""The fields of a statement that hold others."""
_version = functools.cache(metadata.version)  # an imported package does not change
_distributions = functools.cache(metadata.packages_distributions)


def key_of(parts: Mapping[str, Any]) -> str:
    """Return the SHA-256 over the canonical JSON of the parts."""
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def spec_parts(document: Mapping[str, Any], reads: Iterable[str]) -> Parts:
    """Return `spec:train.lr` -> value, for every leaf under the paths in `reads` (a leading `-` excludes a path).

    Args:
        document: The whole spec as JSON.
        reads: Dotted paths; one that the spec lacks has no leaves.
    """
    paths = list(reads)
    leaves = {leaf: value for path in paths for leaf, value in _leaves_at(document, path)}
    without = {leaf for path in paths if path.startswith("-") for leaf, _ in _leaves_at(document, path[1:])}
    return {f"spec:{leaf}": value for leaf, value in leaves.items() if leaf not in without}


class CodeReader:
    """Reads the fingerprints of code; those of Loopline's own modules are of one moment until `renew`.

    Args:
        memory: The file that holds fingerprints by file and stat between runs; None for none. Those of Loopline's own
            modules also stand beside its bytecode, if Python may write it: a new workspace need not read 400 files.
    """

    def __init__(self, memory: Path | None = None) -> None:
        self._path = memory
        self._memory: dict[str, Any] = {**read_json(_beside_bytecode()), **read_json(memory)} if memory else {}
        self._changed = memory is not None and not memory.exists()
        self.renew()

    def renew(self) -> None:
        """Read the own modules as they are now."""
        self._own = _own_modules()
        self._own_files = set(self._own.values())
        self._parts: dict[str, Parts] = {}
        self._own_reads: dict[str, tuple[str, list[str]]] = {}  # a file's fingerprint, and the own files it imports
        self._own_paths: dict[str, Path] = {}
        self._of_own: dict[tuple[tuple[str, ...], tuple[Path, ...]], Parts] = {}

    def own_file(self, module: str) -> Path | None:
        """Return the file of an own module by its dotted name, or None."""
        if module in self._own and module not in self._own_paths:
            self._own_paths[module] = Path(self._own[module])
        return self._own_paths.get(module)

    def save(self) -> None:
        """Save the memory; a failure is harmless and only costs time later."""
        if not self._changed or not self._path:
            return
        self._changed = False
        own = {file: self._memory[file] for file in self._own_files & self._memory.keys()}
        for path, memory in ((self._path, self._memory), (not sys.dont_write_bytecode and _beside_bytecode(), own)):
            if path:
                with contextlib.suppress(OSError, StoreError):
                    write_text(path, json.dumps(memory))

    def parts(self, modules: Iterable[str], files: Iterable[Path] = (), packages: Collection[str] = ()) -> Parts:
        """Return `code:models/training/loop.py` -> fingerprint, for the modules and all own modules that they import.

        Args:
            modules: Dotted names of modules under `models` or `tasks`, and patterns for modules that are imported by
                name, which no import statement shows: `models.nets.*`.
            files: A user's files; their imports from their own folder are followed too.
            packages: Packages that a spec names; of installed ones the version counts too, since compiled code has no
                fingerprint.

        Raises:
            LookupError: There is no such module, and none that fits a pattern.
        """
        named = (*modules,), (*files,)
        if not packages and named in self._of_own:
            return self._of_own[named]
        parts, seen, imported = self._followed([path for name in named[0] for path in self._files_of(name)], named[1])
        if not seen and not packages and not imported:
            self._of_own[named] = parts
        for path in sorted(seen, key=Path):
            name = f"code:{_shown(path)}"  # files with the same name share a part, which holds both fingerprints
            parts[name] = f"{parts[name]} {seen[path]}" if name in parts else seen[path]
        installed = imported.union(*map(_installed, packages))
        return parts | {f"library:{name}": self._package_version(name) for name in sorted(installed)}

    def users_files(self, files: Iterable[Path]) -> set[str]:
        """Return a user's files and all that they import of their own, which `parts` fingerprints."""
        return set(self._followed([], files)[1])

    def package_parts(self, names: Iterable[str]) -> Parts:
        """Return `package:sklearn` -> the version of its distribution, for the names that imports use."""
        return {f"{PACKAGE}{name}": self._package_version(name) for name in sorted(names)}

    def _followed(self, todo: list[str], files: Iterable[Path]) -> tuple[Parts, dict[str, str], set[str]]:
        """Follow imports; return the parts of own modules, a user's files with their fingerprints, and packages."""
        named = [path for path in files if path.is_file()]
        todo += map(str, named)
        parts: Parts = {}
        seen: dict[str, str] = {}
        packages: set[str] = set()
        while todo:
            path = todo.pop()
            if path in self._own_files:
                parts |= self._parts_of(path)
            elif path not in seen:
                seen[path], imports = self._read(path)
                for name in imports:
                    source = self._source_of(name, (Path(path), *named))
                    if source is None and name.partition(".")[0] not in _OURS:
                        source = _source_elsewhere(name)
                        packages |= set() if source else _installed(name)
                    todo += [source] if source else []
        return parts, seen, packages

    def _files_of(self, pattern: str) -> list[str]:
        """Return the files of the own modules that fit a dotted name or a pattern."""
        if pattern in self._own:
            return [self._own[pattern]]
        paths = [self._own[name] for name in fnmatch.filter(self._own, pattern)]
        if not paths:
            raise LookupError(f"no own module fits {pattern}, whose code is part of a step's key")
        return paths

    def _package_version(self, name: str) -> str | None:
        """Return the version of the distribution that an import by this name loads; None without one."""
        with contextlib.suppress(metadata.PackageNotFoundError):
            return _version(name)
        memory, stamp = f"import {name}", os.stat(sysconfig.get_path("purelib")).st_mtime_ns  # noqa: PTH116
        if self._memory.get(memory, [None])[0] != stamp:
            self._memory[memory] = [stamp, _distributions().get(name, [None])[0]]
            self._changed = True
        distribution = self._memory[memory][1]
        return distribution and f"{distribution} {_version(distribution)}"

    def _parts_of(self, path: str) -> Parts:
        """Return the parts of an own file, which leads only to own files."""
        if path not in self._parts:
            seen: dict[str, str] = {}
            todo = [path]
            while todo:
                file = todo.pop()
                if file not in seen:
                    seen[file], imported = self._read_own(file)
                    todo += imported
            self._parts[path] = {f"code:{_shown(file)}": fingerprint for file, fingerprint in seen.items()}
        return self._parts[path]

    def _read_own(self, path: str) -> tuple[str, list[str]]:
        if path not in self._own_reads:
            fingerprint, imports = self._read(path)
            self._own_reads[path] = fingerprint, [source for name in imports if (source := self._source_of(name))]
        return self._own_reads[path]

    def _source_of(self, name: str, siblings: Sequence[Path] = ()) -> str | None:
        """Return the file of a module that can change a result: an own module, or a user's module near `siblings`.

        In `from models.project_spec.blocks import Spec` the name is an attribute, which is no module and has no file.
        """
        if name.partition(".")[0] in PACKAGES:
            is_machinery = name.startswith(MACHINERY) and name not in DECIDING
            return None if is_machinery or name in SILENT_MODULES else self._own.get(name)
        return _users(name, *siblings) if siblings else None

    def _read(self, path: str) -> tuple[str, list[str]]:
        stat = os.stat(path)  # noqa: PTH116 - for hundreds of files
        stamp = [stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino]
        cached = self._memory.get(path)
        if not cached or cached[0] != stamp:
            cached = self._memory[path] = [stamp, *_fingerprint(Path(path))]
            self._changed = True
        return cached[1], cached[2]


def declared(parts: Mapping[str, Any]) -> Parts:
    """Return the parts that are known before a step runs."""
    return {name: value for name, value in parts.items() if not name.startswith((READ, PACKAGE))}


def code_parts(modules: Iterable[str], files: Iterable[Path] = ()) -> Parts:
    """Return the parts that a `CodeReader` without a memory reads."""
    return CodeReader().parts(modules, files)


def library_parts(names: Iterable[str]) -> Parts:
    """Return `library:torch` -> installed version."""
    return {f"library:{name}": _version(name) for name in names}


def differences(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Return the differences of two sets of parts as text, spec first; what own code read counts where both have it."""
    keys = {*now, *declared(before)}
    changed = sorted(key for key in keys if now.get(key) != before.get(key))
    order = {"spec": 0, "input": 1, "file": 2, "source": 2, "read": 2, "feedback": 3, "code": 4}
    order |= {"library": 5, "package": 5}
    changed.sort(key=lambda key: order.get(key.partition(":")[0], 9))
    return [_difference(key, before.get(key), now.get(key)) for key in changed]


def _difference(key: str, before: Any, now: Any) -> str:
    kind, _, name = key.partition(":")
    if kind in ("spec", "library", "package"):
        return f"{name}: {_short(before)} -> {_short(now)}"
    if kind == "feedback":
        return f"{name}: {before or 'none'} -> {now or 'none'}"
    if before is None:
        return f"{kind} {name}: new"
    return f"{kind} {name}: gone" if now is None else f"{kind} {name}: changed"


def _short(value: Any) -> str:
    text = canonical(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _leaves_at(document: Any, path: str) -> Iterable[tuple[str, Any]]:
    for key in path.split("."):
        if not isinstance(document, dict) or key not in document:
            return
        document = document[key]
    yield from _leaves(path, document)


def _leaves(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}" if path else str(key), inner)
    else:
        yield path, value


def _beside_bytecode() -> Path:
    """Return the file of the own modules' fingerprints, of this version of Python: its syntax trees differ."""
    return Path(importlib.util.cache_from_source(str(ROOT / PACKAGES[0] / "fingerprints.py"))).with_suffix(".json")


def _own_modules() -> dict[str, str]:
    """Return dotted names of the modules under PACKAGES and their files; one listing serves thousands of lookups."""
    modules = {}
    for package in PACKAGES:
        for folder, _, names in os.walk(ROOT / package):
            dotted = folder[len(str(ROOT)) + 1 :].replace(os.sep, ".")
            for name in names:
                if name.endswith(".py"):
                    modules[dotted if name == "__init__.py" else f"{dotted}.{name[:-3]}"] = f"{folder}{os.sep}{name}"
    return modules


def _users(name: str, importer: Path, *named: Path) -> str | None:
    """Return a module in the folder of the importing file, around its package, or in the folders of the `named` files.

    Python searches the last ones because each named file's folder is on its path (`models/project_spec/references.py`).
    Of installed packages only the one that holds such a file is followed; others count by their versions.
    """
    level = len(name) - len(name.lstrip("."))
    packages = itertools.takewhile(lambda folder: (folder / "__init__.py").is_file(), importer.parents)
    absolute = [importer.parent, *(folder.parent for folder in packages), *(path.parent for path in named)]
    folders = [importer.parents[level - 1]] if level else absolute
    parts = name.strip(".").split(".")
    for folder in folders:
        if folder.name in _SITES and not any(_is_in(file, folder, parts[0]) for file in (importer, *named)):
            continue
        path = folder.joinpath(*parts)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return str(file)
    return None


def _is_in(file: Path, folder: Path, package: str) -> bool:
    """Return whether a file is the module, or in the package, of this name in a folder."""
    return file == folder / f"{package}.py" or file.is_relative_to(folder / package)


@functools.cache
def _place_of(package: str) -> tuple[Path, ...]:
    """Return the folders that hold a package or module of this name; none of Python's own.

    Nothing is imported: a name without a dot has no parent.
    """
    with contextlib.suppress(ImportError, ValueError):
        package_spec = None if package in sys.stdlib_module_names else importlib.util.find_spec(package)
        if package_spec is not None and package_spec.submodule_search_locations is not None:
            return tuple(Path(folder).parent for folder in package_spec.submodule_search_locations)
        if package_spec is not None and package_spec.origin:
            return (Path(package_spec.origin).parent,)
    return ()


def _source_elsewhere(name: str) -> str | None:
    """Return a module's file that is no installed distribution's: of an editable install, or a folder in PYTHONPATH."""
    for folder in _place_of(name.partition(".")[0]):
        if _SITES.isdisjoint(folder.parts):
            path = folder.joinpath(*name.split("."))
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    return str(file)
    return None


def _installed(name: str) -> set[str]:
    """Return the package of an import if it is installed; none of Python's own, of files, and that is not there."""
    package = name.partition(".")[0]
    is_installed = any(_SITES & {*folder.parts} for folder in _place_of(package))
    return {package} if is_installed else set()


def _fingerprint(path: Path) -> tuple[str, list[str]]:
    """Return a hash of the code's AST without comments, layout and docstrings, and the imported modules."""
    try:
        tree = read_python(path)
    except SyntaxError:
        return sha256(path)[:16], []
    imports: set[str] = set()
    todo: list[ast.AST] = [tree]
    while todo:  # statements alone: expressions, most of the tree, hold neither imports nor docstrings
        node = todo.pop()
        imports.update(_names(node))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node, False
        ):
            node.body = node.body[1:]
        todo += [inner for part in _STATEMENTS for inner in getattr(node, part, ())]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16], sorted(imports)


def _names(node: ast.AST) -> Iterable[str]:
    """Yield every module that an import may run: its parent packages, and each imported name that may be a module."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from itertools.accumulate(alias.name.split("."), "{}.{}".format)
    elif isinstance(node, ast.ImportFrom):
        dots, module = "." * node.level, node.module or ""
        yield from (dots + name for name in itertools.accumulate(module.split("."), "{}.{}".format) if name)
        yield from (f"{dots}{module}{'.' if module else ''}{alias.name}" for alias in node.names)


@functools.cache
def _shown(file: str) -> str:
    path = Path(file)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
