"""What stands for a kind in the product: words, fields, flags of rows, tables, classes and functions.

The words of the kinds and the fields that stand for one are listed here. The rest is found in the syntax trees, so that
a new table, a new flag or a new property counts from the day on which it is written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.structure.nodes import walk

Trees = dict[str, ast.Module]

TASKS = frozenset({"binary", "multiclass", "multilabel", "regression", "quantile", "language", "ranking"})
DATA_KINDS = frozenset({"table", "image", "series", "text"})
COLUMN_KINDS = frozenset({"numeric", "categorical", "datetime", "fitted"})
_NETS = {"mlp", "tabm", "gru", "lstm", "decoder", "transformer", "cnn", "resnet"}
FAMILIES = frozenset({"trees", "linear", "descriptors", "naive", "smoothing", *_NETS})
WORDS = {"task": TASKS, "data kind": DATA_KINDS, "kind of column": COLUMN_KINDS, "family": FAMILIES}

SHAPES = frozenset({"window", "characters", "pixels", "texts", "ngrams", "series"})
"""Fields of a preparation and of a spec that are set for one kind of data alone."""
STAND_INS = frozenset({"classes", "outputs", "group", "log_offset"})
"""Fields of a target that are set for some tasks alone."""
OWN_LISTS = frozenset({"numeric", "categorical", "datetimes", "texts", "fitted", "ngrams", "pixels"})
"""Fields of a preparation that hold the inputs of one kind of column."""
TENSORS = frozenset({"image", "series", "tokens", "words"})
"""Names of tensors that examples of one kind of data have alone."""

CATALOGUES = frozenset({"CATALOGUE"})
"""Tables of all that the product has: who stands there is the product's own, of whichever kind."""
KEYED = frozenset({"PerTask", "PerLink", "PerDataKind", "Task"})
"""Types that say in the annotation of a table that its keys or members are kinds, or words of their rows."""
ROOM_OF_ROWS, ROOM_OF_COLUMNS = "models/kinds/", "models/inputs/"


@dataclass
class Vocabulary:
    """The names that stand for a kind.

    `tables`: tables and tuples of kinds, by dotted module; `modules`: these names. `choices`: tables whose values are
    truths or may be None. `rows`: classes of the values of tables. `flags`: fields of rows that are true or false, or
    may be empty, `family_flags` those of families; `choices_of` those that hold one of a few words, with these.
    `classes`: rows, and the classes that tables name within them; `records` those of one kind of column. `constants`:
    names of one kind's word. `functions` and `properties`: answers about a kind, true or false; `look_ups`: functions
    that return a flag of a row, by module.
    """

    tables: dict[str, set[str]] = field(default_factory=dict)
    modules: dict[ast.AST, str] = field(default_factory=dict)
    choices: set[str] = field(default_factory=set)
    rows: set[str] = field(default_factory=set)
    flags: set[str] = field(default_factory=set)
    family_flags: set[str] = field(default_factory=set)
    choices_of: dict[str, frozenset[str]] = field(default_factory=dict)
    classes: set[str] = field(default_factory=set)
    records: set[str] = field(default_factory=set)
    constants: dict[str, str] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    properties: set[str] = field(default_factory=set)
    look_ups: dict[str, set[str]] = field(default_factory=dict)


def vocabulary_of(trees: Trees) -> Vocabulary:
    """Return what stands for a kind in these modules; functions and properties are left to the caller."""
    words, families = Vocabulary(), set[str]()
    for path, tree in trees.items():
        module = words.modules[tree] = path.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        for name, annotation, value in assignments(tree):
            if word := constant_word(value):
                words.constants[name] = word
            elif is_table(annotation, value):
                if name not in CATALOGUES:
                    words.tables.setdefault(module, set()).add(name)
                rows = class_names(row_type(annotation), *called(held_values(value)))
                words.rows |= rows
                families |= rows if name in CATALOGUES else set()
                words.classes |= words.rows | class_names(value)
                if is_choice(annotation, value):
                    words.choices.add(name)
    words.classes &= {node.name for tree in trees.values() for node in walk(tree) if isinstance(node, ast.ClassDef)}
    for path, tree in trees.items():
        literals = {name: strings(value) for name, _, value in assignments(tree) if "Literal" in names(value)}
        for node in walk(tree):
            if isinstance(node, ast.ClassDef):
                if node.name in words.rows or path.startswith(ROOM_OF_ROWS):
                    (words.family_flags if node.name in families else words.flags).update(flags_of(node))
                if path.startswith((ROOM_OF_ROWS, ROOM_OF_COLUMNS)):
                    words.classes.add(node.name)
                    words.choices_of |= choices_of(node, literals)
                if path.startswith(ROOM_OF_COLUMNS) and path.count("/") > ROOM_OF_COLUMNS.count("/"):
                    words.records.add(node.name)
    return words


def assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None, ast.expr]]:
    """Yield name, annotation and value of each constant of a module."""
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
                yield name, annotation, value
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, None, value


def constant_word(value: ast.expr) -> str:
    """Return the word of a kind that a constant is another name of; empty for all else."""
    match value:
        case ast.Constant(value=str(text)) if any(text in words for words in WORDS.values()):
            return text
    return ""


def strings(node: ast.AST) -> set[str]:
    """Return the texts that stand in an expression."""
    return {part.value for part in walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def names(node: ast.AST | None) -> set[str]:
    """Return the names that an expression reads, those in the text of an annotation too."""
    return {part.id for part in walk(node) if isinstance(part, ast.Name)} if node else set()


def is_table(annotation: ast.expr | None, value: ast.expr) -> bool:
    """Return whether the keys of a table, or the members of a tuple or a set, are kinds."""
    match value:
        case ast.Dict(keys=keys):
            members = [key for key in keys if key]
        case ast.Tuple(elts=members) | ast.Set(elts=members) | ast.List(elts=members):
            pass
        case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[ast.Tuple() | ast.Set() | ast.List()]):
            members = list(value.args[0].elts)  # type: ignore[attr-defined]
        case _:
            members = []
    texts = {member.value for member in members if isinstance(member, ast.Constant) and isinstance(member.value, str)}
    if texts and any(texts <= words for words in WORDS.values()):
        return True
    return bool(names(annotation) & KEYED) and isinstance(annotation, ast.Subscript)


def held_type(annotation: ast.expr | None) -> ast.expr | None:
    """Return the type of a table's values: the last one within its brackets. A function's arguments are no rows."""
    if not isinstance(annotation, ast.Subscript):
        return None
    held = annotation.slice.elts[-1] if isinstance(annotation.slice, ast.Tuple) else annotation.slice
    return None if is_function(held) else held


def is_function(annotation: ast.expr) -> bool:
    """Return whether a type is that of functions."""
    return isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Callable"


def row_type(annotation: ast.expr | None) -> ast.expr | None:
    """Return the class of a table's rows; None if its values are classes or functions."""
    held = held_type(annotation)
    return held if isinstance(held, ast.Name) else None


def held_values(value: ast.expr) -> list[ast.expr]:
    """Return the values of a table."""
    return value.values if isinstance(value, ast.Dict) else []


def called(values: list[ast.expr]) -> list[ast.expr]:
    """Return what is called by those of these that are calls."""
    return [value.func for value in values if isinstance(value, ast.Call)]


def class_names(*nodes: ast.expr | None) -> set[str]:
    """Return the classes that expressions name."""
    read = {name for node in nodes for name in names(node)}
    return {name for name in read if name.lstrip("_")[:1].isupper() and not name.isupper()} - KEYED


def is_optional(annotation: ast.expr) -> bool:
    """Return whether a value is a truth, or may be None; a function that returns None is there."""
    if is_function(annotation):
        return False
    return ast.unparse(annotation) == "bool" or any(
        isinstance(part, ast.Constant) and part.value is None for part in walk(annotation)
    )


def is_choice(annotation: ast.expr | None, value: ast.expr) -> bool:
    """Return whether the values of a table are truths, or may be None."""
    if held := held_type(annotation):
        return is_optional(held)
    constants = [held.value for held in held_values(value) if isinstance(held, ast.Constant)]
    return any(constant is None or isinstance(constant, bool) for constant in constants)


def flags_of(node: ast.ClassDef) -> Iterator[str]:
    """Yield the fields of a row that are true or false, may be None, or have an empty value when nothing is said."""
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                if is_optional(annotation) or is_empty(value):
                    yield name


def choices_of(node: ast.ClassDef, literals: dict[str, set[str]]) -> dict[str, frozenset[str]]:
    """Return the fields of a row that hold one of a few words, with these; its name is none of them."""
    fields = [statement for statement in node.body if isinstance(statement, ast.AnnAssign)]
    words = {ast.unparse(part.target): literals.get(ast.unparse(part.annotation), set()) for part in fields}
    return {name: frozenset(of_field) for name, of_field in words.items() if of_field and name not in ("name", "kind")}


def is_empty(value: ast.expr | None) -> bool:
    """Return whether the default of a field is an empty text, tuple, list or table."""
    match value:
        case ast.Constant(value="") | ast.Tuple(elts=[]) | ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Call(func=ast.Name(id="field"), keywords=keywords):
            return any(
                keyword.arg == "default_factory"
                and names(keyword.value) & {"list", "dict", "tuple", "set", "frozenset"}
                for keyword in keywords
            )
    return False
