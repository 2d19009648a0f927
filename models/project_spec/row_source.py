"""Rows that a team brings: plain dicts of literals and of functions, such as `METRIC = {"value": cost, ...}`.

A spec names a row by its capital name, `./metric.py:METRIC` or `package.module:METRIC`. Its file imports nothing of
Loopline's. Before a run the row is read from the syntax tree, and nothing of the file runs; where it is used it is
imported, and both go through the same check.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from models.errors import UsageError, did_you_mean
from models.files import read_python
from models.project_spec.references import is_own_code, lacks, source_file

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
    where, path = f"{key}: {reference}", source_file(reference, base)
    if path is None or not path.is_file():
        raise UsageError(f"{where}: there is no {path or 'source file of it'}: write it, or correct the name")
    try:
        values = _values(read_python(path).body)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{where}: {path.name} is no Python ({error}): correct it") from error
    name = reference.rpartition(":")[2]
    if name not in values:
        raise UsageError(f"{key}: {lacks(reference, reference, values)}")
    node = values[name]
    if not isinstance(node, ast.Dict):
        raise UsageError(f"{where}: {_shown(node)} is no dict, expected it written out: {name} = {{...}}")
    return checked_row({_text(part, where): _value(value, values, where) for part, value in _pairs(node)}, form, where)


def checked_row(row: Any, form: RowForm, where: str) -> dict[str, Any]:
    """Return a row with the defaults of what it leaves out.

    Raises:
        UsageError: It is no dict, lacks a key, has one that is unknown, or one whose value does not fit.
    """
    if not is_record(row):
        raise UsageError(f"{where}: is a {type(row).__name__}, expected a dict with {', '.join(form.keys)}")
    for name in row:
        if name not in form.keys:
            cure = did_you_mean(name, form.keys, f"expected some of {', '.join(form.keys)}")
            raise UsageError(f"{where}: a row {form.name} has no key {name!r}: {cure}")
    for name, key in form.keys.items():
        if name not in row and key.default is NEEDED:
            raise UsageError(f"{where}: {name!r} is missing, expected {key.expected}: add it")
        if name in row and not key.fits(row[name]):
            raise UsageError(f"{where}: {name}: got {row[name]!r}, expected {key.expected}")
    return {name: row.get(name, key.default) for name, key in form.keys.items()}


def _values(body: Iterable[ast.stmt]) -> dict[str, ast.AST]:
    """Return what each name of a module stands for: the statement that defines it, or the value that it is given."""
    values: dict[str, ast.AST] = {}
    for node in _statements(body):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                values[node.name] = node
            case ast.Import() | ast.ImportFrom():
                values |= {(alias.asname or alias.name).partition(".")[0]: node for alias in node.names}
            case ast.Assign():
                values |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                values[name] = value
    return values


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            inner = (handler.body for handler in node.handlers) if isinstance(node, ast.Try) else ()
            yield from _statements([*node.body, *itertools.chain.from_iterable(inner), *node.orelse])


def _pairs(node: ast.Dict) -> list[tuple[ast.expr | None, ast.expr]]:
    return [*zip(node.keys, node.values, strict=True)]


def _text(node: ast.expr | None, where: str) -> str:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        raise UsageError(f"{where}: got the key {_shown(node) if node else '**'}, expected a text, written out")
    return node.value


def _value(node: ast.expr, values: Mapping[str, ast.AST], where: str) -> Any:
    """Return a literal, also one that has a name, or the name of anything else that the file defines."""
    named = values.get(node.id) if isinstance(node, ast.Name) else node
    if named is None:
        cure = did_you_mean(_shown(node), values, "define it there")
        raise UsageError(f"{where}: the file defines no {_shown(node)}: {cure}")
    try:
        return ast.literal_eval(named)
    except (ValueError, TypeError):
        if isinstance(node, ast.Name):
            return FunctionName(node.id)
    raise UsageError(f"{where}: got {_shown(node)}, expected a literal or the name of a function of the file")


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node).partition("\n")[0]
    return text if len(text) <= 60 else text[:57] + "..."
