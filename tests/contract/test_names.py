"""Names are the field's terms: one word for one thing, and one thing for one word."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.structure.nodes import walk

FORBIDDEN = {
    "asked", "asking", "begun", "beside", "board", "book", "bringing", "buckets", "courier", "door", "doors",
    "follower", "found", "gang", "given", "kept", "lookout", "nursery", "passage", "pulse", "refusals",
    "rehearsal", "returning", "said", "shelf", "speaks", "standing", "stretch", "taking", "tied", "told", "wishes",
}  # fmt: skip
"""Names of files and classes that say what was done to a thing, or an image, where the field has a term."""


def classes(tree: ast.Module) -> list[str]:
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def test_no_file_or_class_has_a_private_word_for_a_name(trees: dict[Path, ast.Module]) -> None:
    named = {
        str(path): {path.stem, *(name.strip("_").lower() for name in classes(tree))} for path, tree in trees.items()
    }
    assert {path: sorted(names & FORBIDDEN) for path, names in named.items() if names & FORBIDDEN} == {}


PRIVATE_WORDS = {
    "asked", "book", "books", "courier", "found", "gang", "gangs", "given", "kept", "lookout", "nursery", "passage",
    "pulse", "said", "shelf", "shelves", "speaks", "standing", "stretch", "tied", "told", "ways",
}  # fmt: skip


def identifiers(tree: ast.AST) -> set[str]:
    """Every name that code binds or reads: variables, arguments, attributes, functions."""
    names = set()
    for node in walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
    return {name.strip("_").lower() for name in names}


def test_a_thing_is_named_by_what_it_is(trees: dict[Path, ast.Module]) -> None:
    """`message`, `rows`, `fork_server`: not what was done to it, and no image."""
    named = {str(path): sorted(identifiers(tree) & PRIVATE_WORDS) for path, tree in trees.items()}
    assert {path: names for path, names in named.items() if names} == {}


def test_no_two_public_classes_share_a_name(trees: dict[Path, ast.Module]) -> None:
    places = defaultdict(list)
    for path, tree in trees.items():
        for name in classes(tree):
            if not name.startswith("_"):
                places[name].append(str(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_names_of_ours_in_strings_exist(root: Path, trees: dict[Path, ast.Module]) -> None:
    """A module or file of ours that a string names is there: programs are started, and pages point, by such names."""
    dotted = re.compile(r"\b(?:models|tasks|flows)(?:[.:][a-z_]\w*)+")
    paths = re.compile(r"(?<![\w/])(?:models|tasks|flows|infra|docs)(?:/[\w.-]+)+\.(?:py|json|md|yaml)\b")
    missing = []
    for path, tree in trees.items():
        for node in walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names = [*dotted.findall(node.value)]
                missing += [f"{path}: {name}" for name in names if not is_there(root, name)]
                missing += [f"{path}: {name}" for name in paths.findall(node.value) if not (root / name).exists()]
    assert missing == []


def is_there(root: Path, dotted: str) -> bool:
    """Whether a dotted name is a module of ours, or something that a module defines."""
    parts = re.split(r"[.:]", dotted)
    for count in range(len(parts), 0, -1):
        place = root.joinpath(*parts[:count])
        module = place.with_suffix(".py")
        if place.is_dir() or module.is_file():
            rest = parts[count : count + 1]
            return not rest or (module.is_file() and re.search(rf"\b{rest[0]}\b", module.read_text()) is not None)
    return False
