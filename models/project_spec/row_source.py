"""Rows that a team brings: plain dicts of literals and of functions, such as `METRIC = {"value": cost, ...}`.

A spec names a row by its capital name, `./metric.py:METRIC` or `package.module:METRIC`. Its file imports nothing of
Loopline's. Before a run the row is read from the syntax tree, and nothing of the file runs; where it is used it is
imported, and both go through the same check.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from models.errors import UsageError, did_you_mean
from models.files import read_python
from models.project_spec.references import is_own_code, lacks
from models.project_spec.syntax import module_file, names_of, statements_of

NEEDED = object()
"""The default of a key that a row must have."""


class FunctionName(str):
    """The name of a function or class that the file of a row defines or imports."""

    __slots__ = ()


class RowKey(NamedTuple):
    """What a key of a row holds.

    Attributes:
        expected: What it holds in words, for messages.
        fits: Returns whether a value is such a one; functions are `FunctionName` before a run.
        default: Its value if the row lacks it; `NEEDED` for none.
    """

    expected: str
    fits: Callable[[Any], bool]
    default: Any = NEEDED


class RowForm(NamedTuple):
    """A sort of rows: the capital name by which a reference tells it, and its keys."""

    name: str
    keys: Mapping[str, RowKey]


def is_function(value: Any) -> bool:
    """Return whether a value of a row is a function, or the name of one."""
    return isinstance(value, FunctionName) or callable(value)


def is_flag(value: Any) -> bool:
    """Return whether a value of a row is True or False."""
    return isinstance(value, bool)


def is_record(value: Any) -> bool:
    """Return whether a value of a row is a dict with texts as keys."""
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def is_texts(value: Any) -> bool:
    """Return whether a value of a row is a list of texts."""
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


def one_of(choices: Iterable[str], default: Any = NEEDED) -> RowKey:
    """Return a key that holds one of some texts."""
    texts = [*choices]
    return RowKey(f"one of {', '.join(texts)}", lambda value: isinstance(value, str) and value in texts, default)


def some_of(choices: Iterable[str], default: Any = NEEDED) -> RowKey:
    """Return a key that holds a list of some of these texts."""
    texts = [*choices]
    return RowKey(
        f"a list of some of {', '.join(texts)}",
        lambda value: isinstance(value, list | tuple) and bool(value) and all(text in texts for text in value),
        default,
    )


def is_row(reference: str, name: str) -> bool:
    """Return whether a reference names a row of this name, by itself: `./costs.py:METRIC` or `:RECALL_METRIC`."""
    return is_own_code(reference) and reference.rpartition(":")[2].endswith(name)


def row_name(reference: str, name: str) -> str:
    """Return the short name of own code: of a row what is before its capital name or its file's, else the attribute.

    `./costs.py:METRIC` is `costs`, `./costs.py:LATE_METRIC` is `late`, and `./costs.py:late` is `late`.
    """
    target, _, attr = reference.rpartition(":")
    if not attr.endswith(name):
        return attr
    file = target.rpartition("/")[2].removesuffix(".py").rpartition(".")[2]
    return attr.removesuffix(name).strip("_").lower() or file


def read_row(reference: str, base: Path, form: RowForm, key: str) -> dict[str, Any]:
    """Return a row from the syntax tree of its file, with functions as `FunctionName`; nothing of the file runs.

    Args:
        reference: `./file.py:NAME` or `package.module:NAME`.
        base: The folder from which relative files start.
        form: The keys of such rows.
        key: The key of the spec or file that names the row, for messages.

    Raises:
        UsageError: There is no such file or name, it is no dict that is written out, or it does not fit the form.
    """
    where, path = f"{key}: {reference}", row_file(reference, base, key)
    try:
        body = read_python(path).body
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{where}: {path.name} is no Python ({error}): correct it") from error
    values, name = _values(body), reference.rpartition(":")[2]
    if name not in values:
        raise UsageError(f"{key}: {lacks(reference, reference, values)}")
    node = values[name]
    if not isinstance(node, ast.Dict):
        line = _line(getattr(node, "lineno", None))
        raise UsageError(f"{where}: {_shown(node)} is no dict, expected it written out: {name} = {{...}}{line}")
    change = next((statement for statement in statements_of(body) if _changes(statement, name)), None)
    if change is not None:
        line = _line(change.lineno)
        raise UsageError(f"{where}: {_shown(change)} changes the row, expected it written out as a whole{line}")
    pairs = {_text(part, value, where): value for part, value in _pairs(node)}
    lines = {part: value.lineno for part, value in pairs.items()}
    return checked_row({part: _value(value, values, where) for part, value in pairs.items()}, form, where, lines)


def row_file(reference: str, base: Path, key: str) -> Path:
    """Return the file of a row, which is found without an import.

    Raises:
        UsageError: There is no such file or module.
    """
    target = reference.rpartition(":")[0]
    path = (base / target).resolve() if target.endswith(".py") else module_file(target)
    if path is None:
        top = target.partition(".")[0]
        module = target if module_file(top) else top
        raise UsageError(f"{key}: {reference}: no module {module!r}: install it, or correct the name")
    if not path.is_file():
        raise UsageError(f"{key}: {reference}: there is no {path}: write it, or correct the name")
    return path


def _line(line: int | None) -> str:
    return f" (line {line})" if line else ""


def _changes(statement: ast.stmt, name: str) -> bool:
    """Return whether a statement changes the dict of this name: `ROW["key"] = value`, `ROW |= more`, `ROW.update()`."""
    match statement:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=changed))]):
            return changed == name
        case ast.AugAssign(target=ast.Name(id=changed) | ast.Subscript(value=ast.Name(id=changed))):
            return changed == name
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=changed)))):
            return changed == name
    return False


def checked_row(row: Any, form: RowForm, where: str, lines: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return a row with the defaults of what it leaves out.

    Args:
        row: Read from the source, or imported.
        form: Its keys.
        where: Where it is named, for messages.
        lines: The lines of its keys, where they are known.

    Raises:
        UsageError: It is no dict, lacks a key, has one that is unknown, or one whose value does not fit.
    """
    if not is_record(row):
        raise UsageError(f"{where}: is a {type(row).__name__}, expected a dict with {', '.join(form.keys)}")
    places = {name: _line(line) for name, line in (lines or {}).items()}
    for name in row:
        if name not in form.keys:
            cure = did_you_mean(name, form.keys, f"expected some of {', '.join(form.keys)}")
            raise UsageError(f"{where}: a row {form.name} has no key {name!r}: {cure}{places.get(name, '')}")
    for name, key in form.keys.items():
        if name not in row and key.default is NEEDED:
            raise UsageError(f"{where}: {name!r} is missing, expected {key.expected}: add it")
        if name in row and not key.fits(row[name]):
            place = places.get(name, "")
            raise UsageError(f"{where}: {name}: got {row[name]!r}, expected {key.expected}{place}")
    return {name: row.get(name, key.default) for name, key in form.keys.items()}


def _values(body: Iterable[ast.stmt]) -> dict[str, ast.AST]:
    """Return what each name of a module stands for: the statement that defines it, or the value that it is given."""
    values: dict[str, ast.AST] = {}
    for node in statements_of(body):
        values |= dict.fromkeys(names_of(node), getattr(node, "value", None) or node)
    return values


def _pairs(node: ast.Dict) -> list[tuple[ast.expr | None, ast.expr]]:
    return [*zip(node.keys, node.values, strict=True)]


def _text(node: ast.expr | None, value: ast.expr, where: str) -> str:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        key, line = _shown(node) if node else "**", _line(value.lineno)
        raise UsageError(f"{where}: got the key {key}, expected a text, written out{line}")
    return node.value


def _value(node: ast.expr, values: Mapping[str, ast.AST], where: str) -> Any:
    """Return a literal, also one that has a name, or the name of anything else that the file defines."""
    named, line = values.get(node.id) if isinstance(node, ast.Name) else node, _line(node.lineno)
    if named is None:
        cure = did_you_mean(_shown(node), values, "define it there")
        raise UsageError(f"{where}: the file defines no {_shown(node)}: {cure}{line}")
    try:
        return ast.literal_eval(named)
    except (ValueError, TypeError):
        if isinstance(node, ast.Name):
            return FunctionName(node.id)
    raise UsageError(f"{where}: got {_shown(node)}, expected a literal or the name of a function of the file{line}")


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node).partition("\n")[0]
    return text if len(text) <= 60 else text[:57] + "..."
