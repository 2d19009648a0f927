"""Writes the page of the kinds: their rows of facts, and the table of each room, read from the code."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from models.inputs.record import Form
from models.inputs.records import RECORDS
from models.kinds.data_kind import DATA_KINDS, KIND_NAMES
from models.kinds.task import TASK_NAMES, TASKS, Link
from models.nets.catalogue import CATALOGUE, ESTIMATOR, OWN_NET

ROOT = Path(__file__).resolve().parents[2]
KEYS: dict[str, tuple[str, ...]] = {
    "PerTask": TASK_NAMES,
    "PerLink": get_args(Link),
    "PerDataKind": KIND_NAMES,
    "dict[Form": get_args(Form),
}
"""The columns of each sort of table, by the beginning of its type."""
TITLES = {
    "PerTask": "By task",
    "PerLink": "By link: how the outputs of a net become predictions",
    "PerDataKind": "By kind of data",
    "dict[Form": "By form: how a row gives the value of an input",
}
_OF_FAMILIES = ("by_descent", "fit", "outputs", "graphs", "weights")
LONGEST = 36
"""Characters of a cell; a longer expression is cut."""


class RoomTable(NamedTuple):
    """A table of a room. `cells`: what it holds for each key, as it is written."""

    path: str
    name: str
    sort: str
    cells: dict[str, str]


def page(note: str) -> str:
    """Return the page."""
    parts = [
        f"# Kinds\n\n{note}\nWhat the product has several of stands in a table, and a stage asks the table. A *row* "
        "holds facts that several rooms ask; what one room alone does with a kind stands in a table of that room. The "
        "type checker refuses a table in which a task or a kind of data is missing.\n",
        "## Tasks\n\n" + _facts(TASKS, "models/kinds/task.py"),
        "## Kinds of data\n\n" + _facts(DATA_KINDS, "models/kinds/data_kind.py"),
        "## Kinds of column\n\nEach has a folder below `models/inputs/`: `record` is what a server reads, `rows` "
        "learns and encodes, `nodes` writes the same into the graph. Their order is that of the columns of tensors.\n\n"
        + _grid(["kind", "record", "form", "is"], _columns()),
        "## Families\n\n`models/nets/catalogue.py`. A spec may also name an own torch net, or an estimator: a class "
        "or a row in a file.\n\n" + _grid(["family", "kinds of data", *_OF_FAMILIES], _families()),
    ]
    tables = list(room_tables())
    for sort, keys in KEYS.items():
        rows = [[f"`{each.name}`<br>{each.path}", *_cells(each, keys)] for each in tables if each.sort == sort]
        parts.append(f"## {TITLES[sort]}\n\n" + _grid(["table", *keys], rows))
    return "\n".join(parts) + "\nNext: [what still asks for a kind](branches.md)\n"


def room_tables() -> Iterator[RoomTable]:
    """Yield the tables of all rooms, in the order of their files."""
    for floor in ("models", "tasks", "flows"):
        for path in sorted((ROOT / floor).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                match node:
                    case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.Dict() as table):
                        sort = next((sort for sort in KEYS if ast.unparse(annotation).startswith(sort)), "")
                        items = zip(table.keys, table.values, strict=True)
                        cells = {ast.unparse(key).strip("'"): ast.unparse(value) for key, value in items if key}
                        if name not in ("TASKS", "DATA_KINDS") and cells.keys() & set(KEYS.get(sort, ())):
                            yield RoomTable(path.relative_to(ROOT).as_posix(), name, sort, cells)


def _cells(table: RoomTable, keys: Iterable[str]) -> Iterator[str]:
    """Yield what a table holds for each key, shortened; a table by form may lack some."""
    for key in keys:
        text = textwrap.shorten(table.cells[key], LONGEST, placeholder="...") if key in table.cells else ""
        yield f"`{text.replace('|', '/')}`" if text else ""


def _facts(table: Any, path: str) -> str:
    """Return the rows of facts: a line for each fact, a column for each kind."""
    rows = list(table.values())
    described = _field_texts(path, type(rows[0]).__name__)
    lines = [
        [f"`{fact.name}`", *(_value(getattr(row, fact.name)) for row in rows), described.get(fact.name, "")]
        for fact in dataclasses.fields(rows[0])
        if fact.name != "name"
    ]
    return f"`{path}`\n\n" + _grid(["fact", *table, "is"], lines)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return ", ".join(value) if isinstance(value, dict) else str(value)


def _field_texts(path: str, name: str) -> dict[str, str]:
    """Return what the source says of each field of a class, below it."""
    classes = (node for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.ClassDef))
    body = next(node.body for node in classes if node.name == name)
    texts = {}
    for statement, following in itertools.pairwise(body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=fact)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[fact] = " ".join(text.split())
    return texts


def _columns() -> Iterator[list[str]]:
    for kind, record in RECORDS.items():
        first = (record.__doc__ or "").partition("\n")[0]
        yield [kind, f"`{record.__name__}`", str(record.model_fields["form"].default), first.replace("|", "\\|")]


def _families() -> Iterator[list[str]]:
    named = {**CATALOGUE, "an own net": OWN_NET, "an estimator": ESTIMATOR}
    for name, row in named.items():
        yield [name, ", ".join(row.kinds), *(_value(getattr(row, fact)) for fact in _OF_FAMILIES)]


def _grid(head: list[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"
