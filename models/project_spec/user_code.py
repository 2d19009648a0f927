"""Checks a spec's references to the project's own Python files before a run; the files are parsed, not imported."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from models.errors import UsageError
from models.files import read_python
from models.project_spec import references
from models.project_spec.blocks import Spec

_CODE = (
    *("data.source", "data.features.make", "data.features.fit", "data.features.transform"),
    *("model.net", "goal.metric", "train.loss", "train.augment.function"),
)
"""The keys that may name code."""


def check_own_code(spec: Spec, base: Path) -> None:
    """Check the references to the project's own code and weights, as far as this is possible without running it.

    Raises:
        UsageError: A file is missing, or does not define the name, code is of Python's own library, or means a package
            of the project that has the name of one of ours.
    """
    document = spec.model_dump()
    for key in _CODE:
        _refuse_wrong_package(key, base, functools.reduce(lambda block, name: block[name], key.split("."), document))
    for position, expectation in enumerate(spec.data.expectations):
        _refuse_wrong_package(f"data.expectations.{position}.expect", base, expectation.expect)
    for key, reference in _references(document, ""):
        target, _, name = reference.rpartition(":")
        path = base / target
        if not path.is_file():
            raise UsageError(f"{key}: {reference}: there is no {path}: write it, or correct the name")
        names = _defined(path)
        if names is not None and name not in names:
            raise UsageError(f"{key}: {references.lacks(reference, reference, names)}")
        _refuse_namesakes(f"{key}: {reference}", path, base)
    for text in spec.reads:
        if not (base / text).exists():
            raise UsageError(f"reads: got {text!r}, and there is no {base / text}: expected a file or a folder")
    if spec.train.start is not None and not references.is_version(spec.train.start.weights):
        references.weights_file(spec.train.start.weights, base)


def _refuse_wrong_package(key: str, base: Path, reference: Any) -> None:
    if not isinstance(reference, str) or not references.is_own_code(reference) or ".py:" in reference:
        return
    target, _, name = reference.rpartition(":")
    top = target.partition(".")[0]
    if top in sys.stdlib_module_names:
        raise UsageError(
            f"{key}: got {reference!r}, which is of Python's own library, expected code of yours: "
            "`package.module:name` or `./file.py:name`"
        )
    if top in references.OWN_PACKAGES and references.has_package(base, top):
        raise UsageError(
            f"{key}: got {reference!r}, but Python has a package {top!r} of Loopline's, expected the file itself: "
            f"./{target.replace('.', '/')}.py:{name}"
        )


def _refuse_namesakes(where: str, path: Path, base: Path) -> None:
    """Refuse a file that imports a package of the project which has the name of one of ours: Python finds ours."""
    try:
        tree = read_python(path)
    except (OSError, SyntaxError, ValueError):
        return  # the import reports where and why
    for statement in (node for node in ast.walk(tree) if isinstance(node, ast.stmt)):
        for module in modules_of(statement):
            top = module.partition(".")[0]
            if top in references.OWN_PACKAGES and any(references.has_package(to, top) for to in (base, path.parent)):
                raise UsageError(
                    f"{where}: line {statement.lineno} imports {module}, but Python has a package {top!r} of "
                    f"Loopline's: give yours another name, or move it into a package of yours, such as shop/{top}"
                )


def _references(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _references(part, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for part in value:
            yield from _references(part, key)
    elif isinstance(value, str) and ".py:" in value and references.is_own_code(value):
        yield key, value


def _defined(path: Path) -> set[str] | None:
    """Return the names that a module defines; None if they cannot be determined."""
    try:
        tree = read_python(path)
    except (OSError, SyntaxError, ValueError):
        return None  # the import reports where and why
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return None if "*" in names or "__getattr__" in names else names


def modules_of(statement: ast.stmt) -> list[str]:
    """Return the modules that a statement imports, but for those relative to its own."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        return [statement.module]
    return []


def factory_of(path: Path, name: str) -> ast.FunctionDef | None:
    """Return the function, or the constructor of the class, that a file defines at its top; None if it is elsewhere."""
    try:
        body = read_python(path).body
    except (OSError, SyntaxError, ValueError):
        return None  # the import reports where and why
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return None if node.decorator_list else node
        if isinstance(node, ast.ClassDef) and node.name == name:
            initialisers = [
                statement
                for statement in node.body
                if isinstance(statement, ast.FunctionDef) and statement.name == "__init__"
            ]
            return initialisers[0] if initialisers and not node.decorator_list else None
    return None
