"""Cache keys: a step's key is a hash over named parts, which are all inputs that its result depends on.

Parts keep their names so that a plan can show *which* input changed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from models.project_spec.blocks import Spec

PACKAGES = ("models", "tasks")
ROOT = Path(__file__).resolve().parents[2]
OWN_FOLDERS = tuple(f"{ROOT / package}{os.sep}" for package in PACKAGES)
# Edits of these modules change messages or storage locations, never results.
MACHINERY = (
    "tasks.host",
    "tasks.state",
    "tasks.ranks",
    "tasks.loop",
    "tasks.prefect",
    "tasks.platform",
    "tasks.mlflow.delivery",
    "tasks.mlflow.embedded_store",
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
        "models.project_spec.methods",
        "models.project_spec.serve",
        "models.project_spec.reader",
        "models.project_spec.search",
        "models.files",
        "models.pipeline.records",
    }
)

Parts = dict[str, Any]
_version = functools.cache(metadata.version)  # an imported package does not change


def key_of(parts: Mapping[str, Any]) -> str:
    """Return the SHA-256 over the canonical JSON of the parts."""
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def spec_parts(spec: Spec, reads: Iterable[str]) -> Parts:
    """Return `spec:train.lr` -> value, for every leaf under the paths in `reads` (a leading `-` excludes a path)."""
    document = spec.model_dump(mode="json")
    wanted = list(reads)
    leaves = dict(_leaves("", document))
    without = tuple(path[1:] for path in wanted if path.startswith("-"))
    return {
        f"spec:{path}": value
        for path, value in leaves.items()
        if any(_under(path, want) for want in wanted if not want.startswith("-"))
        and not any(_under(path, no) for no in without)
    }


def code_parts(modules: Iterable[str], files: Iterable[Path] = (), memory: dict[str, Any] | None = None) -> Parts:
    """Return `code:models/training/loop.py` -> fingerprint, for the modules and all own modules that they import.

    Args:
        modules: Dotted names of modules under `models` or `tasks`.
        files: A user's files; their imports from their own folder are followed too.
        memory: Fingerprints by file and stat, which the caller keeps between runs.
    """
    memory = memory if memory is not None else {}
    own = _own_modules()
    named = [path for path in files if path.is_file()]
    todo = [own[name] for name in modules] + [str(path) for path in named]
    seen: dict[str, str] = {}
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        fingerprint, imports = _read_code(path, memory)
        seen[path] = fingerprint
        # An own module leads only to own modules; a user's file also to files in its folder and in those of `files`.
        siblings = () if path.startswith(OWN_FOLDERS) else (Path(path), *named)
        todo += [inner for name in imports if (inner := _source_of(name, own, siblings)) is not None]
    parts: Parts = {}
    for path, fingerprint in sorted(seen.items(), key=lambda item: Path(item[0])):
        name = f"code:{_shown(Path(path))}"  # files with the same name share a part, which holds both fingerprints
        parts[name] = f"{parts[name]} {fingerprint}" if name in parts else fingerprint
    return parts


def library_parts(names: Iterable[str]) -> Parts:
    """Return `library:torch` -> installed version."""
    return {f"library:{name}": _version(name) for name in names}


def differences(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Return the differences of two sets of parts as text, spec first."""
    changed = sorted(key for key in {*now, *before} if now.get(key) != before.get(key))
    order = {"spec": 0, "input": 1, "file": 2, "feedback": 3, "code": 4, "library": 5}
    changed.sort(key=lambda key: order.get(key.partition(":")[0], 9))
    return [_difference(key, before.get(key), now.get(key)) for key in changed]


def _difference(key: str, before: Any, now: Any) -> str:
    kind, _, name = key.partition(":")
    if kind in ("spec", "library"):
        return f"{name}: {_short(before)} -> {_short(now)}"
    if kind == "feedback":
        return f"{name}: {before or 'none'} -> {now or 'none'}"
    if before is None:
        return f"{kind} {name}: new"
    return f"{kind} {name}: gone" if now is None else f"{kind} {name}: changed"


def _short(value: Any) -> str:
    text = canonical(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _leaves(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}" if path else str(key), inner)
    else:
        yield path, value


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + ".")


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


def _source_of(name: str, own: Mapping[str, str], siblings: Sequence[Path]) -> str | None:
    """Return the file of a module that can change a result: an own module, or a user's module near `siblings`.

    In `from models.project_spec.blocks import Spec` the name is an attribute, which is no module and has no file.
    """
    if name.partition(".")[0] in PACKAGES:
        is_machinery = name.startswith(MACHINERY) and name not in DECIDING
        return None if is_machinery or name in SILENT_MODULES else own.get(name)
    return _users(name, *siblings) if siblings else None


def _users(name: str, importer: Path, *named: Path) -> str | None:
    """Return a module in the folder of the importing file, around its package, or in the folders of the `named` files.

    Python searches the last ones because each named file's folder is on its path (`models/project_spec/references.py`).
    """
    level = len(name) - len(name.lstrip("."))
    packages = itertools.takewhile(lambda folder: (folder / "__init__.py").is_file(), importer.parents)
    absolute = [importer.parent, *(folder.parent for folder in packages), *(path.parent for path in named)]
    folders = [importer.parents[level - 1]] if level else absolute
    for folder in folders:
        path = folder.joinpath(*name.strip(".").split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return str(file)
    return None


def _read_code(path: str, memory: dict[str, Any]) -> tuple[str, list[str]]:
    stat = os.stat(path)  # noqa: PTH116 - for hundreds of files
    stamp = [stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino]
    known = memory.get(path)
    if known and known[0] == stamp:
        return known[1], known[2]
    fingerprint, imports = _fingerprint(Path(path))
    memory[path] = [stamp, fingerprint, imports]
    return fingerprint, imports


def _fingerprint(path: Path) -> tuple[str, list[str]]:
    """Return a hash of the code's AST without comments, layout and docstrings, and the imported modules."""
    source = path.read_bytes()
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return hashlib.sha256(source).hexdigest()[:16], []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node, False
        ):
            node.body = node.body[1:]
    imports = {name for node in ast.walk(tree) for name in _names(node)}
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


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
