"""Tells of one place in the syntax tree whether it asks for a kind, and in which way (the groups of `branches`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.structure.nodes import walk
from tests.structure.vocabulary import (
    OWN_LISTS,
    SHAPES,
    STAND_INS,
    TENSORS,
    WORDS,
    Vocabulary,
    is_table,
    names,
    strings,
)

Place = ast.expr | ast.pattern

FIELDS = SHAPES | STAND_INS
HINTS = {"data kind": ("kind",), "task": ("task",), "family": ("net", "famil")}
"""What stands beside a word of a kind where the word is also a plain one, or is compared among others."""
ALONE = ("task", "data kind", "kind of column")
"""Groups whose words need no hint where nothing else is compared."""
FAMILY_ANSWERS = frozenset({"is_auto"})
SORT_OF_FAMILY = "sort_of_net"
"""Tells a ready net from a reference; a table that is keyed by it is none, a comparison is a branch."""


@dataclass(frozen=True)
class Scope:
    """What names mean in a function: tables and look-ups that its module knows, and its names for fields of kinds."""

    tables: frozenset[str]
    look_ups: frozenset[str]
    aliases: dict[str, str]


def questions(tree: ast.AST, words: Vocabulary) -> dict[Place, str]:
    """Return each place of a module or a function that asks for a kind, with its group; also those within another."""
    scope = Scope(own_names(tree, words, words.tables), own_names(tree, words, words.look_ups), {})
    places: dict[Place, str] = {}
    add_questions(tree, words, scope, places)
    for node in walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (aliases := aliases_of(node, words, scope)):
            add_questions(node, words, replace(scope, aliases=aliases), places)
    return places


def add_questions(tree: ast.AST, words: Vocabulary, scope: Scope, places: dict[Place, str]) -> None:
    """Add the places below a node that ask for a kind."""
    for node in walk(tree):
        for place, group in questions_of(node, words, scope):
            if group:
                places.setdefault(place, group)


def questions_of(node: ast.AST, words: Vocabulary, scope: Scope) -> Iterator[tuple[Place, str]]:
    """Yield the places of one node with their groups, empty where they ask for no kind."""
    for test in tests_of(node):
        yield test, group_of_field(test, words, scope)
    match node:
        case ast.Compare():
            yield node, group_of_comparison(node, words, scope)
        case ast.Call(func=ast.Attribute(), args=args) if {
            name for part in args for name in end_of(part)
        } & words.records:
            yield node, "own list"
        case ast.Call():
            yield node, group_of_call(node, words, scope)
        case ast.Match(subject=subject, cases=cases):
            for case in cases:
                yield case.pattern, group_of_pattern(case.pattern, subject, words, scope)
        case ast.Attribute(attr=name, ctx=ast.Load()) if name in words.properties:
            yield node, "answer"
        case ast.Attribute(value=value, attr=name) if name in OWN_LISTS and "preparation" in ast.unparse(value):
            yield node, "own list"


def tests_of(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that a node asks for their truth, or whose truth chooses from a pair."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test):
            yield bare(test)
        case ast.comprehension(ifs=tests) | ast.BoolOp(values=tests):
            yield from map(bare, tests)
        case ast.UnaryOp(op=ast.Not(), operand=test) | ast.match_case(guard=ast.expr() as test):
            yield bare(test)
        case ast.Call(func=ast.Name(id="bool"), args=[test]):
            yield bare(test)
        case ast.Call(func=ast.Name(id="any" | "all"), args=[ast.GeneratorExp(elt=test)]):
            yield bare(test)
        case ast.Subscript(value=ast.Tuple() | ast.List() | ast.Dict(), slice=test):
            yield bare(test)


def bare(expression: ast.expr) -> ast.expr:
    """Return what is asked, without `not`, `bool`, `len`, `int` and a name that it gets on the way."""
    match expression:
        case ast.UnaryOp(operand=inner) | ast.NamedExpr(value=inner):
            return bare(inner)
        case ast.Call(func=ast.Name(id="bool" | "len" | "int"), args=[inner]):
            return bare(inner)
    return expression


def group_of_field(expression: ast.expr, words: Vocabulary, scope: Scope) -> str:
    """Return the group of a field of a kind, of a name for it, or of a value of a table; empty for all else."""
    match expression:
        case ast.Attribute(attr=name) if name in words.flags:
            return "flag"
        case ast.Attribute(attr=name) if name in words.family_flags:
            return "family"
        case ast.Attribute(attr=name) if name in FIELDS:
            return "stand-in"
        case ast.Name(id=name):
            alias = scope.aliases.get(name, "name" if name in FIELDS else "")
            return "" if alias in words.choices_of else alias
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name)) if name in words.choices & scope.tables:
            return "flag"
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in scope.look_ups:
            return "answer"
    return ""


def group_of_comparison(node: ast.Compare, words: Vocabulary, scope: Scope) -> str:
    """Return the group of a comparison; empty if it asks for no kind."""
    sides = [node.left, *node.comparators]
    source = ast.unparse(node)
    constants = {words.constants[name] for side in sides for name in end_of(side) if name in words.constants}
    if group := group_of_words(strings(node) | constants, source):
        return group
    if any(isinstance(side, ast.Call) and SORT_OF_FAMILY in end_of(side.func) for side in sides):
        return "family"
    if is_of_shape(node) or is_of_tensor(node):
        return "shape"
    fields = [group_of_field(bare(side), words, scope) for side in sides if any(map(is_empty, sides))]
    if any(fields):
        return next(filter(None, fields))
    if any(is_of_choice(side, strings(node), words, scope) for side in sides):
        return "flag"
    if is_of_table(node, source, words, scope):
        return "table"
    is_of_type = any(isinstance(side, ast.Call) and ast.unparse(side.func) == "type" for side in sides)
    return "class" if is_of_type and any(names(side) & words.classes for side in sides) else ""


def group_of_words(texts: set[str], source: str) -> str:
    """Return the group whose words these texts are; words that are plain ones need a hint in the source."""
    for group, of_group in WORDS.items():
        hinted = any(hint in source for hint in HINTS.get(group, ()))
        if texts & of_group and (hinted or (group in ALONE and texts <= of_group)):
            return group
    return ""


def is_of_choice(side: ast.expr, texts: set[str], words: Vocabulary, scope: Scope) -> bool:
    """Return whether a field of a row, or a name for it, is compared with a word that it may hold."""
    fields = {scope.aliases.get(name, name) for name in end_of(side)}
    return any(texts & words.choices_of.get(name, frozenset()) for name in fields)


def is_of_shape(node: ast.Compare) -> bool:
    """Return whether a comparison is of a field of one kind of data, or of what is in it, with None."""
    is_of_none = any(isinstance(side, ast.Constant) and side.value is None for side in node.comparators)
    return is_of_none and any(isinstance(part, ast.Attribute) and part.attr in SHAPES for part in walk(node.left))


def is_of_tensor(node: ast.Compare) -> bool:
    """Return whether a comparison asks for a tensor by its name: `"tokens" in batch`."""
    return (
        isinstance(node.ops[0], ast.In | ast.NotIn)
        and isinstance(node.left, ast.Constant)
        and node.left.value in TENSORS
    )


def is_of_table(node: ast.Compare, source: str, words: Vocabulary, scope: Scope) -> bool:
    """Return whether a comparison asks which kinds a table, a tuple or a row is for."""
    looked_up = {part.value for part in walk(node) if isinstance(part, ast.Subscript)}
    read = {name for side in node.comparators for part in walk(side) if part not in looked_up for name in end_of(part)}
    if read & scope.tables:
        return True
    if not all(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops):
        return False
    is_upper = any(name.isupper() and len(name) > 3 for name in read)
    is_of_rows = bool(read & {"tasks", "kinds", *words.flags}) and (
        "task" in source or "kind" in ast.unparse(node.left)
    )
    return is_of_rows or (is_upper and ("task" in source.lower() or bool(end_of(node.left) & words.choices_of.keys())))


def is_empty(side: ast.expr) -> bool:
    """Return whether an expression is None, a truth, nought, or an empty text or collection."""
    match side:
        case ast.Constant(value=value):
            return value is None or value == "" or (isinstance(value, int) and value in (0, 1))
        case ast.Tuple(elts=[]) | ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
    return False


def group_of_call(node: ast.Call, words: Vocabulary, scope: Scope) -> str:
    """Return the group of a call that answers for a kind, asks for a class, or looks for a kind in a table."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in FAMILY_ANSWERS:
            return "family"
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in words.functions:
            return "answer"
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, classes]):
            return "class" if names(classes) & words.classes else ""
        case ast.Call(func=ast.Name(id="hasattr"), args=[_, ast.Constant(value=name)]):
            return "class" if name in FIELDS | OWN_LISTS | words.flags else ""
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), _]):
            return "class" if name in FIELDS | OWN_LISTS | words.flags else ""
        case ast.Call(func=ast.Attribute(value=table, attr="get")):
            return "table" if end_of(table) & scope.tables or is_table(None, table) else ""
    return ""


def group_of_pattern(pattern: ast.pattern, subject: ast.expr, words: Vocabulary, scope: Scope) -> str:
    """Return the group of a case of a `match`: its words or classes, or any case of a field of a kind."""
    texts = strings(pattern)
    if group := next((group for group, of_group in WORDS.items() if texts and texts <= of_group), ""):
        return group
    for part in walk(pattern):
        if isinstance(part, ast.MatchClass) and end_of(part.cls) & words.classes:
            return "class"
    if is_of_choice(subject, strings(pattern), words, scope):
        return "flag"
    is_wildcard = isinstance(pattern, ast.MatchAs) and pattern.pattern is None
    return "" if is_wildcard else group_of_field(bare(subject), words, scope)


def end_of(node: ast.AST) -> set[str]:
    """Return the last name of a dotted one; nothing for other expressions."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {name}
    return set()


def own_names(tree: ast.AST, words: Vocabulary, by_module: dict[str, set[str]]) -> frozenset[str]:
    """Return those of these names that a module makes or imports: another module may have others of the same name."""
    if not isinstance(tree, ast.Module):
        return frozenset().union(*by_module.values())
    imported = {
        alias.asname or alias.name
        for node in walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in by_module.get(node.module or "", ())
    }
    return frozenset(imported | by_module.get(words.modules.get(tree, ""), set()))


def aliases_of(function: ast.AST, words: Vocabulary, scope: Scope) -> dict[str, str]:
    """Return the names that a function gives to fields that stand for a kind, with the groups of these.

    A field of a row that holds one of a few words is no condition yet: its name takes the place of the group.
    """
    aliases = {}
    for node in walk(function):
        if isinstance(node, ast.Assign):
            group = group_of_field(bare(node.value), words, scope)
            field = "".join(end_of(node.value) & words.choices_of.keys())
            for name in end_of(node.targets[0]):
                if group or field:
                    aliases[name] = "name" if group == "stand-in" else group or field
    return aliases
