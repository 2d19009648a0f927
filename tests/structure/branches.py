"""Counts the branches on kinds of the product: where a stage asks which kind it has, instead of asking a table.

Run `python -m tests.structure.branches [-v] [FOLDER]`; `-v` prints each of them, FOLDER is another checkout. A branch
is counted once, in one of the groups of `GROUPS`.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.structure.nodes import walk
from tests.structure.questions import Place, questions
from tests.structure.vocabulary import ROOM_OF_COLUMNS, Trees, Vocabulary, vocabulary_of

FLOORS = ("flows", "tasks", "models")
GROUPS = {
    "task": "a comparison with the word of a task, or a case of it",
    "data kind": "the same of a kind of data",
    "shape": "a field that is set for one kind of data alone is compared with None, or a tensor of it looked for",
    "family": "the same of a family, a flag of its row, or a call of a function that answers for one",
    "kind of column": "the same of a kind of column",
    "stand-in": "a field that is set for some tasks or kinds of data alone is asked for its truth or for None",
    "flag": "a field of a row that is true or false or may be empty is asked, or such a value of a table",
    "answer": "a property or a function is used that does nothing but answer for a kind",
    "table": "`in TABLE`, `TABLE.get(x)`, where the keys of the table are kinds",
    "class": "`isinstance`, `hasattr`, `type(x) is` or `case Row()` on a class of rows, or one that a table names",
    "own list": "a line that names the list of one kind of column, outside the rooms of the kinds",
    "name": "a variable or a parameter that holds such a field is asked for its truth or for None",
}
IN_WORDS = ("task", "data kind", "shape", "family")
"""The groups of branches on a kind in so many words."""
BESIDE = ("name",)
"""Not in the joint count: a name tells less surely than a field that it stands for a kind."""


@dataclass(frozen=True, order=True)
class Branch:
    """A place where the product asks for a kind."""

    path: str
    line: int
    last_line: int
    group: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def read_trees(root: Path) -> Trees:
    """Return the syntax tree of every module of the product, by its path."""
    paths = [path for floor in FLOORS for path in sorted((root / floor).rglob("*.py"))]
    return {path.relative_to(root).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def trees_of(arguments: list[str]) -> Trees:
    """Return the modules of the checkout that the arguments of a script name, or of the one here."""
    folders = [argument for argument in arguments if argument != "-v"]
    return read_trees(Path(folders[0] if folders else "."))


def room_of(path: str) -> str:
    """Return the folder of a module below its floor, e.g. `models/data`."""
    return "/".join(path.split("/")[:2])


def branches(trees: Trees) -> list[Branch]:
    """Return every branch on a kind of these modules, each once, in their order."""
    words = vocabulary_of(trees)
    add_answers(trees, words)
    return sorted(branch for path, tree in trees.items() for branch in branches_of_module(path, tree, words))


def add_answers(trees: Trees, words: Vocabulary) -> None:
    """Add the functions and properties that do nothing but answer for a kind, those that pass an answer on too."""
    answers = [
        (node, is_property(node))
        for tree in trees.values()
        for node in walk(tree)
        if isinstance(node, ast.FunctionDef) and is_answer(node)
    ]
    size = -1
    while size < (size := len(words.functions) + len(words.properties)):
        for node, as_property in answers:
            if set(questions(node, words).values()) - {"own list"}:
                (words.properties if as_property else words.functions).add(node.name)
    for tree in trees.values():
        functions = (node for node in walk(tree) if isinstance(node, ast.FunctionDef))
        look_ups = [node for node in functions if is_look_up(node, words)]
        words.properties |= {node.name for node in look_ups if is_property(node)}
        words.look_ups[words.modules[tree]] = {node.name for node in look_ups} - words.functions - words.properties


def is_property(node: ast.FunctionDef) -> bool:
    """Return whether a function is read like a field."""
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def is_answer(node: ast.FunctionDef) -> bool:
    """Return whether a function returns a truth and does nothing else: each of its statements returns or asks."""
    return (
        node.returns is not None
        and ast.unparse(node.returns) == "bool"
        and all(isinstance(statement, ast.Return | ast.If | ast.Expr | ast.Match) for statement in node.body)
    )


def is_look_up(node: ast.FunctionDef, words: Vocabulary) -> bool:
    """Return whether a function does nothing but return a flag of the row of a kind."""
    num_statements = len(node.body) - (ast.get_docstring(node) is not None)
    return num_statements == 1 and any(
        isinstance(part, ast.Attribute) and isinstance(part.value, ast.Subscript) and part.attr in words.flags
        for part in walk(node.body[-1])
    )


def branches_of_module(path: str, tree: ast.Module, words: Vocabulary) -> Iterator[Branch]:
    """Yield the branches of a module: of two within one another the outer one, and of one kind's list each line."""
    places, lines = questions(tree, words), set()
    hidden = set(within_another(places))
    for node, group in places.items():
        if group == "own list":
            if node in hidden or node.lineno in lines or path.startswith(ROOM_OF_COLUMNS):
                continue
            lines.add(node.lineno)
        if node not in hidden or isinstance(node, ast.Compare):
            yield Branch(path, node.lineno, node.end_lineno or node.lineno, group, ast.unparse(node))


def within_another(places: dict[Place, str]) -> Iterator[ast.AST]:
    """Yield what stands within a branch, e.g. the field that is compared; a list is passed on, and is none."""
    for place, group in places.items():
        if group != "own list":
            yield from (node for node in walk(place) if node is not place)


def count(found: list[Branch]) -> dict[str, int]:
    """Return the joint count, those of branches in so many words and on families, and that of names beside all."""
    return {
        "joint": sum(branch.group not in BESIDE for branch in found),
        "in words": sum(branch.group in IN_WORDS for branch in found),
        "family": sum(branch.group == "family" for branch in found),
        "names": sum(branch.group in BESIDE for branch in found),
    }


def main(arguments: list[str]) -> None:
    """Print the branches by group and by room."""
    found = branches(trees_of(arguments))
    for group in GROUPS:
        of_group = [branch for branch in found if branch.group == group]
        rooms = Counter(room_of(branch.path) for branch in of_group).most_common()
        print(f"{group}: {len(of_group)} in {len({branch.path for branch in of_group})} files")
        if rooms:
            print("   ", ", ".join(f"{room} {number}" for room, number in rooms))
        if rooms and "-v" in arguments:
            print(*(f"    {branch}" for branch in of_group), sep="\n")
    numbers = count(found)
    print(f"joint {numbers['joint']}, in so many words {numbers['in words']}; names beside them {numbers['names']}")


if __name__ == "__main__":
    main(sys.argv[1:])
