"""The identity of work: what a step's result depends on, as named parts, and one key over all of them.

Parts have names so that a plan can say *which* input changed.
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
# Editing these changes what is said or where it is kept, never what is computed.
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
    "tasks.mlflow.registry_history",
    "tasks.mlflow.registry_reader",
    "tasks.tools.dvc_view",
)
DECIDING = ("tasks.loop.champion", "tasks.loop.origin")
"""What stands among the machinery and does decide: the registry that a step moves, and the weights it begins with."""
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
_version = functools.cache(metadata.version)  # what is imported stays what it was


def key_of(parts: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON of the parts."""
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def spec_parts(spec: Spec, reads: Iterable[str]) -> Parts:
    """`spec:train.lr` -> value, for every leaf under the paths in `reads` (a leading `-` takes a path out)."""
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
    """`code:models/training/loop.py` -> fingerprint, for the modules and all of ours that they import.

    Args:
        modules: Dotted names of modules under `models` or `tasks`.
        files: A user's files; what they import from their own folder is followed too.
        memory: Fingerprints by file and stat, which the caller stores between runs.
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
        # A module of ours leads to ours alone; a user's also to what lies beside it and beside the files named.
        siblings = () if path.startswith(OWN_FOLDERS) else (Path(path), *named)
        todo += [inner for name in imports if (inner := _source_of(name, own, siblings)) is not None]
    parts: Parts = {}
    for path, fingerprint in sorted(seen.items(), key=lambda item: Path(item[0])):
        name = f"code:{_shown(Path(path))}"  # files of one name in two folders share the part: each still counts
        parts[name] = f"{parts[name]} {fingerprint}" if name in parts else fingerprint
    return parts


def library_parts(names: Iterable[str]) -> Parts:
    """`library:torch` -> installed version."""
    return {f"library:{name}": _version(name) for name in names}


def differences(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """The differences of two sets of parts, in words, spec first."""
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
    """Dotted names of the modules under PACKAGES, and their files: one listing answers thousands of questions."""
    modules = {}
    for package in PACKAGES:
        for folder, _, names in os.walk(ROOT / package):
            dotted = folder[len(str(ROOT)) + 1 :].replace(os.sep, ".")
            for name in names:
                if name.endswith(".py"):
                    modules[dotted if name == "__init__.py" else f"{dotted}.{name[:-3]}"] = f"{folder}{os.sep}{name}"
    return modules


def _source_of(name: str, own: Mapping[str, str], siblings: Sequence[Path]) -> str | None:
    """The file of a module that can change a result: one of ours, or, for a user's file, one in its folders.

    `from models.project_spec.blocks import Spec` names an attribute, which is not a module and has no file.
    """
    if name.partition(".")[0] in PACKAGES:
        is_machinery = name.startswith(MACHINERY) and name not in DECIDING
        return None if is_machinery or name in SILENT_MODULES else own.get(name)
    return _users(name, *siblings) if siblings else None


def _users(name: str, importer: Path, *named: Path) -> str | None:
    """A module in the folder of a user's file, in the file's package, or beside the named files.

    These last folders are where Python looks as the file named is run (`models/project_spec/references.py`).
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
    stat = os.stat(path)  # noqa: PTH116 - of hundreds of files
    stamp = [stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino]
    known = memory.get(path)
    if known and known[0] == stamp:
        return known[1], known[2]
    fingerprint, imports = _fingerprint(Path(path))
    memory[path] = [stamp, fingerprint, imports]
    return fingerprint, imports


def _fingerprint(path: Path) -> tuple[str, list[str]]:
    """Hash of the code's tree without comments, layout and docstrings, and the modules it imports."""
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
    """Every module that an import may run: the packages around it, and each name that may itself be a module."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from itertools.accumulate(alias.name.split("."), "{}.{}".format)
    elif isinstance(node, ast.ImportFrom):
        dots, module = "." * node.level, node.module or ""
        yield from (dots + name for name in itertools.accumulate(module.split("."), "{}.{}".format) if name)
        yield from (f"{dots}{module}{'.' if module else ''}{alias.name}" for alias in node.names)


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
