"""The conformance suite of sources: what keys, monitoring and checks before a run rely on, of a row `SOURCE`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from models.errors import UserCodeError
from models.project_spec.conformance import READ, Claim
from models.sources import own
from models.sources.read import read_source
from models.sources.source import Fetch, Source


class Row(NamedTuple):
    """A row of a team: its reference, its keys, and how a file of a package is fetched."""

    source: Source
    keys: dict[str, Any]
    fetch: Fetch


def source_claims(reference: str, base: Path, fetch: Fetch) -> Iterator[Claim]:
    """Yield the claims on a row `SOURCE`; those on a key that it leaves out are not made.

    Raises:
        UsageError: The row is none.
    """
    source = Source(reference, base)
    row = Row(source, own.declared(source), fetch)
    yield Claim(READ, lambda: None)
    for key, claims in CLAIMS.items():
        for text, check in claims.items() if row.keys[key] is not None else ():
            yield Claim(text, partial(check, row))


def _table(row: Row) -> Any:
    loaded = own.read(row.source, row.fetch)
    return read_source(loaded.rows, loaded.display_name)


def _is_a_table(row: Row) -> None:
    _table(row)


def _is_the_same_again(row: Row) -> None:
    first, second = _table(row), _table(row)
    if not first.equals(second):
        raise UserCodeError(
            f"a second call returns {second.num_rows:,} rows that are not the {first.num_rows:,} of the first: sort "
            "them, say in a query `order by`, and draw with a fixed seed"
        )


def _stays(row: Row) -> None:
    first, second = own.json_of(row.source, "identity"), own.json_of(row.source, "identity")
    if first != second:
        raise UserCodeError(
            f"it returns {first!r}, then {second!r}: return what changes with the rows "
            "alone, such as the newest id, and no clock"
        )


def _stays_while_it_is_read(row: Row) -> None:
    before = own.json_of(row.source, "identity")
    _table(row)
    if own.json_of(row.source, "identity") != before:
        raise UserCodeError("reading changes it, so each loop would read again: return what the rows alone change")


def _is_a_number_or_a_list(row: Row) -> None:
    value = own.arrived(row.source)
    if not isinstance(value, list) and type(value) is not int:
        raise UserCodeError(f"it returns {value!r}, expected a number of rows, or a list of what there is")


def _counts_the_rows(row: Row) -> None:
    value, rows = own.arrived(row.source), _table(row).num_rows
    if type(value) is int and value != rows:
        raise UserCodeError(f"it returns {value:,}, and {rows:,} rows are read: count those that `read` returns")


def _names_the_columns(row: Row) -> None:
    names, columns = own.header(row.source), _table(row).column_names
    if names != columns:
        raise UserCodeError(f"it names {names}, and {columns} are read: name these, in their order")


CLAIMS: dict[str, dict[str, Callable[[Row], None]]] = {
    "read": {
        "what it reads is a table": _is_a_table,
        "the same rows are read again, in the same order": _is_the_same_again,
    },
    "identity": {
        "the identity is the same again": _stays,
        "the identity stays while rows are read": _stays_while_it_is_read,
    },
    "growth": {
        "the growth is a number of rows, or a list": _is_a_number_or_a_list,
        "a number is that of the rows that are read": _counts_the_rows,
    },
    "header": {"the header names the columns that are read": _names_the_columns},
}
