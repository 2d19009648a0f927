"""Counts the functions that take a whole record and read at most two of its fields: they could take the fields.

Run `python -m tests.structure.records [-v] [FOLDER]`; `-v` prints each of them with what it reads, FOLDER is another
checkout. The records are those of `RECORDS`. A function needs a record whole if it calls a method of it, keeps or
returns it, copies it, or passes it on to a function that needs it whole or that is not ours; where it is passed on to
one that reads fields, these are read by both. Left out are methods of the record itself and functions that stand in a
table: there all rows take the same.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.structure.branches import room_of, trees_of
from tests.structure.nodes import walk
from tests.structure.vocabulary import Trees, names

RECORDS = ("Loop", "TrainingJob", "Preparation")
MOST_FIELDS = 2

Function = ast.FunctionDef | ast.AsyncFunctionDef
Key = tuple[str, str]
"""Path of a module and name of a function, as it is called."""


@dataclass
class Taker:
    """A function and a parameter of it that is a whole record.

    `fields` are those that it reads itself; `calls` the functions that it passes the record on to, each with the name
    or the place of the parameter; `is_whole`: it needs the record for another reason.
    """

    path: str
    line: int
    name: str
    record: str
    parameter: str
    fields: set[str] = field(default_factory=set)
    calls: list[tuple[Key, str | int]] = field(default_factory=list)
    is_whole: bool = False

    def __str__(self) -> str:
        return (
            f"{self.path}:{self.line}: {self.name}({self.parameter}) reads {', '.join(sorted(self.fields)) or 'none'}"
        )


def takers(trees: Trees) -> list[Taker]:
    """Return the functions that take a record and read at most two of its fields."""
    methods = {record: set(methods_of(trees, record)) for record in RECORDS}
    functions = {(path, node.name): node for path, tree in trees.items() for node in functions_of(tree)}
    in_tables = {name for tree in trees.values() for name in names_in_tables(tree)}
    found: dict[tuple[Key, str], Taker] = {}
    for path, tree in trees.items():
        imported = imports_of(tree, trees)
        for node in functions_of(tree):
            for parameter, record in records_of(node):
                taker = Taker(path, node.lineno, node.name, record, parameter)
                add_uses(taker, node, methods[record], imported, functions)
                found[(path, node.name), parameter] = taker
    follow(found, functions)
    return [
        taker
        for taker in found.values()
        if not taker.is_whole and len(taker.fields) <= MOST_FIELDS and taker.name not in in_tables
    ]


def functions_of(tree: ast.AST) -> Iterator[Function]:
    """Yield every function and method of a module."""
    for node in walk(tree):
        if isinstance(node, Function):
            yield node


def methods_of(trees: Trees, record: str) -> Iterator[str]:
    """Yield the methods of a record, its properties apart."""
    for tree in trees.values():
        for node in walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == record:
                yield from (
                    inner.name
                    for inner in node.body
                    if isinstance(inner, Function)
                    and not any("property" in ast.unparse(decorator) for decorator in inner.decorator_list)
                )


def names_in_tables(tree: ast.Module) -> Iterator[str]:
    """Yield the functions that the tables of a module name, as values or within its rows."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict | ast.Tuple | ast.List):
            yield from names(node.value)


def records_of(node: Function) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a function that are whole records, with the record's name."""
    for argument in parameters(node):
        if argument.annotation and not names(argument.annotation).isdisjoint(RECORDS):
            annotation = ast.unparse(argument.annotation)
            if (record := annotation.removesuffix(" | None")) in RECORDS:
                yield argument.arg, record


def parameters(node: Function) -> list[ast.arg]:
    """Return the parameters of a function, without `self`."""
    listed = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [argument for argument in listed if argument.arg not in ("self", "cls")]


def imports_of(tree: ast.Module, trees: Trees) -> dict[str, str]:
    """Return the path of the module that each imported function or module of ours comes from."""
    places = {}
    for node in walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            folder = node.module.replace(".", "/")
            for alias in node.names:
                module = f"{folder}/{alias.name}.py"
                places[alias.asname or alias.name] = module if module in trees else f"{folder}.py"
    return places


def add_uses(
    taker: Taker, node: Function, methods: set[str], imported: dict[str, str], functions: dict[Key, Function]
) -> None:
    """Add what a function does with its record."""
    seen: set[ast.AST] = set()
    for inner in walk(node):
        match inner:
            case ast.Attribute(value=ast.Name(id=taker.parameter) as name, attr=attribute):
                seen.add(name)
                taker.fields.add(attribute)
                taker.is_whole |= attribute in methods or attribute.startswith(("model_", "as_json"))
            case ast.Call(func=func, args=arguments, keywords=keywords):
                places: list[tuple[int | str, ast.expr]] = [*enumerate(arguments)]
                places += [(keyword.arg or "", keyword.value) for keyword in keywords]
                key = key_of(func, taker.path, imported)
                for place, value in places:
                    if isinstance(value, ast.Name) and value.id == taker.parameter and key in functions:
                        seen.add(value)
                        taker.calls.append((key, place))
            case ast.Compare(left=ast.Name(id=taker.parameter) as name, comparators=[ast.Constant(value=None)]):
                seen.add(name)
    taker.is_whole |= any(
        isinstance(inner, ast.Name) and inner.id == taker.parameter and inner not in seen for inner in walk(node)
    )


def key_of(func: ast.expr, path: str, imported: dict[str, str]) -> Key:
    """Return path and name of the function that is called; a method is looked for in the same module."""
    match func:
        case ast.Name(id=name):
            return imported.get(name, path), name
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return imported.get(module, path), name
    return "", ""


def follow(found: dict[tuple[Key, str], Taker], functions: dict[Key, Function]) -> None:
    """Give each function the fields that those read to which it passes its record on, until nothing changes."""
    size = -1
    while size < (size := sum(len(taker.fields) + 1000 * taker.is_whole for taker in found.values())):
        for taker in found.values():
            for key, place in taker.calls:
                listed = [argument.arg for argument in parameters(functions[key])]
                name = place if isinstance(place, str) else listed[place] if place < len(listed) else ""
                target = found.get((key, name))
                taker.is_whole |= target is None or target.is_whole
                taker.fields |= target.fields if target else set()


def main(arguments: list[str]) -> None:
    """Print the functions by record and by room."""
    found = takers(trees_of(arguments))
    for record in RECORDS:
        of_record = [taker for taker in found if taker.record == record]
        rooms = Counter(room_of(taker.path) for taker in of_record).most_common()
        print(f"{record}: {len(of_record)}:", ", ".join(f"{room} {number}" for room, number in rooms))
        if "-v" in arguments:
            print(*(f"    {taker}" for taker in of_record), sep="\n")
    print(f"all: {len(found)}")


if __name__ == "__main__":
    main(sys.argv[1:])
