"""Modules of installed packages, read from their source: nothing is imported.

An import of scikit-learn or catboost takes seconds, and importing a team's file would run its code. The definition of
a name is found as Python would find it: in the module, or where the module imports it from.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from models.files import read_python

UNKNOWN = object()
"""A default that is no literal, such as that of an argument from another module."""
REQUIRED = object()
"""An argument that has no default."""
_MOST_IMPORTS = 20
"""Modules that pass a name on, one to the next, until its definition; more are a circle."""


class Definition(NamedTuple):
    """Where a name is defined: the syntax tree of its statement, and the module with its file."""

    node: ast.stmt
    module: str
    path: Path


def module_file(module: str) -> Path | None:
    """Return the file of a module; None if there is none. Only the folder of the top package is asked from Python."""
    top, *parts = module.split(".")
    package = importlib.util.find_spec(top)
    if package is None or package.origin is None:
        return None
    path = Path(package.origin)
    for part in parts:
        folder = path.parent
        path = folder / part / "__init__.py"
        path = path if path.is_file() else folder / f"{part}.py"
        if not path.is_file():
            return None
    return path


def names_in(module: str) -> list[str]:
    """Return the public names that a module defines or imports, and its submodules."""
    path = module_file(module)
    if path is None:
        return []
    tree = _tree(path)
    names = {name for statement in statements_of(tree.body) for name in names_of(statement)} if tree else set()
    if path.name == "__init__.py":
        names |= {file.stem for file in path.parent.glob("*.py")}
        names |= {file.parent.name for file in path.parent.glob("*/__init__.py")}
    return sorted(name for name in names if not name.startswith("_"))


def definition(module: str, name: str) -> Definition | None:
    """Return the definition of a module's name, through the modules that import it; None if there is none."""
    for _ in range(_MOST_IMPORTS):
        path = module_file(module)
        tree = _tree(path) if path else None
        if path is None or tree is None:
            return None
        statement = next((part for part in statements_of(tree.body) if name in names_of(part)), None)
        if not isinstance(statement, ast.ImportFrom):
            return None if statement is None else Definition(statement, module, path)
        origin = {alias.asname or alias.name: alias.name for alias in statement.names}
        module, name = _imported_from(statement, module, path), origin[name]
    return None


def lineage(start: Definition) -> list[Definition]:
    """Return a class and its bases, nearest first, as far as their source is found."""
    assert isinstance(start.node, ast.ClassDef)
    bases = [definition(start.module, base.id) for base in start.node.bases if isinstance(base, ast.Name)]
    classes = [base for base in bases if base is not None and base != start and isinstance(base.node, ast.ClassDef)]
    line = [start, *(ancestor for base in classes for ancestor in lineage(base))]
    return [ancestor for position, ancestor in enumerate(line) if ancestor not in line[position + 1 :]]


def parameters(function: ast.FunctionDef) -> dict[str, Any]:
    """Return the parameters of a function but `self`, with their defaults, `UNKNOWN` or `REQUIRED`."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    without = [None] * (len(positional) - len(arguments.defaults))
    pairs = [*zip(positional, [*without, *arguments.defaults], strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {parameter.arg: literal(default) for parameter, default in pairs if parameter.arg != "self"}


def literal(node: ast.expr | None) -> Any:
    """Return the value of a literal, `UNKNOWN` for other expressions, `REQUIRED` for none."""
    if node is None:
        return REQUIRED
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNKNOWN


@functools.lru_cache(maxsize=64)
def _parsed(path: Path, modified_ns: int) -> ast.Module | None:
    del modified_ns
    try:
        return read_python(path)
    except (OSError, SyntaxError, ValueError):
        return None


def _tree(path: Path) -> ast.Module | None:
    return _parsed(path, path.stat().st_mtime_ns) if path.suffix == ".py" else None


def statements_of(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those under `try` and `if` too: imports that may fail stand there."""
    for statement in body:
        if isinstance(statement, ast.Try | ast.If):
            yield from statements_of([*statement.body, *statement.orelse])
            yield from statements_of(part for handler in getattr(statement, "handlers", ()) for part in handler.body)
        else:
            yield statement


def names_of(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(alias.asname or alias.name).partition(".")[0] for alias in names}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def _imported_from(statement: ast.ImportFrom, module: str, path: Path) -> str:
    if not statement.level:
        return statement.module or ""
    num_up = statement.level - (path.name == "__init__.py")
    package = module.split(".")[: len(module.split(".")) - num_up]
    return ".".join([*package, *(statement.module or "").split(".")]).strip(".")
