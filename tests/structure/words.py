"""Counts the names of the product that say nothing: participles and stand-ins, as `known`, `made`, `each`, `one`.

Run `python -m tests.structure.words [-v] [FOLDER]`; `-v` prints each of them, FOLDER is another checkout. A name counts
where it is bound: as a variable, a parameter, an attribute, a function or a class.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.structure.branches import trees_of
from tests.structure.nodes import walk

STAND_INS = {
    "anew", "ask", "asked", "at", "begun", "bring", "by", "came", "done", "each", "entry", "found", "given", "held",
    "here", "is", "item", "kept", "known", "least", "left", "look", "made", "more", "most", "of", "one", "other",
    "others", "own", "pass_over", "said", "settled", "shown", "take_up", "taken", "there", "thing", "told",
    "try_out", "wanted", "weigh", "what", "why",
}  # fmt: skip
"""Whole names, without leading and trailing underscores."""
PARTS = frozenset({"each", "entry", "item", "thing"})
"""Words that say nothing in a compound either, as in `each_row`."""


@dataclass(frozen=True, order=True)
class StandIn:
    """A name that says nothing, where it is bound."""

    path: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}"


def is_stand_in(name: str, *, is_short_lived: bool = False) -> bool:
    """Return whether a name says nothing. `is_short_lived`: of a comprehension, where one letter is enough."""
    word = name.strip("_")
    return word in STAND_INS or not PARTS.isdisjoint(word.split("_")) or (len(word) == 1 and not is_short_lived)


def bindings(tree: ast.AST) -> Iterator[tuple[str, int, bool]]:
    """Yield every name that is bound, its line, and whether it is bound by a comprehension."""
    short = {id(node) for outer in walk(tree) if isinstance(outer, ast.comprehension) for node in walk(outer.target)}
    for node in walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno, id(node) in short
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno, False
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno, False


def stand_ins(trees: Mapping[str, ast.AST]) -> tuple[list[StandIn], int]:
    """Return the names that say nothing, in their order, and the number of all bindings."""
    names, total = [], 0
    for path, tree in trees.items():
        for name, line, is_short_lived in bindings(tree):
            total += 1
            if is_stand_in(name, is_short_lived=is_short_lived):
                names.append(StandIn(path, line, name))
    return sorted(names), total


def main(arguments: list[str]) -> None:
    """Print the share of the names that say nothing, how often each occurs, and with `-v` where."""
    names, total = stand_ins(trees_of(arguments))
    for name in names if "-v" in arguments else ():
        print(name)
    for word, count in Counter(name.name.strip("_") for name in names).most_common():
        print(f"{count:5} {word}")
    print(f"{len(names)} of {total} bindings: {len(names) / total:.2%}")


if __name__ == "__main__":
    main(sys.argv[1:])
