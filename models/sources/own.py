"""A source of a team: a function, or a row of functions (`SOURCE`), beside the spec or in an installed package.

| a row has | it is called |
|---|---|
| `read` | when `ingest` runs; returns a data frame, an Arrow table or a path |
| `identity` | by `plan`, and before each loop: JSON that changes when the source does; `ingest` runs again then |
| `growth` | by monitoring, and when `ingest` runs: a number of rows, or a list of what there is; default: `identity` |
| `header` | never: a list of the names of the columns, for checks before a run |

Each function may take `project` (the spec's folder); `read` also `fetch` (a package source -> path), `read_source` and
`read_r` (a path -> an Arrow table, or the objects of a file of R).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models.errors import UserCodeError
from models.files import Hashes
from models.project_spec import references
from models.project_spec.row_source import RowForm, RowKey, checked_row, is_function, is_row, is_texts, read_row
from models.sources.source import Arrival, Fetch, LastIngest, Loaded, Parts, Source

KEY = "data.source"
ARRIVED = "arrived"
"""The function beside a source function, and the field of ingest's result that holds what it returned."""
_SHOWN = 5


FORM = RowForm(
    "SOURCE",
    {
        "read": RowKey("a function that returns a data frame, an Arrow table or a path", is_function),
        "identity": RowKey("a function that returns JSON, which changes when the source does", is_function, None),
        "growth": RowKey("a function that returns a number of rows, or a list of what there is", is_function, None),
        "header": RowKey("a list of the names of the columns", is_texts, None),
    },
)


def declared(source: Source) -> dict[str, Any]:
    """Return the row of a source as its file says, without running it; a function is a row with `read` alone.

    Raises:
        UsageError: There is no such row, or it has not the form.
    """
    if is_row(source.text, FORM.name):
        return read_row(source.text, source.base, FORM, KEY)
    return {"read": source.text, "identity": None, "growth": None, "header": None}


def local(source: Source) -> Path | None:
    """Return None, for what own code reads may be anywhere; refuse a row that has not the form.

    Raises:
        UsageError: See `declared`.
    """
    declared(source)
    return None


def header(source: Source) -> list[str] | None:
    """Return the columns that a row names, or None."""
    names = declared(source)["header"]
    return None if names is None else [*names]


def read(source: Source, fetch: Fetch) -> Loaded:
    """Return what the function `read` returns.

    Raises:
        UserCodeError: It failed.
    """
    from models.sources.r_data import read_r
    from models.sources.read import read_source

    loaded = _called(source, "read", fetch=fetch, read_source=read_source, read_r=read_r)
    return Loaded(source.base / loaded if isinstance(loaded, (str, Path)) else loaded, f"{KEY} {source.text}")


def identity(source: Source, _: Hashes, last: Parts | None) -> Parts:
    """Return what the function `identity` returns, or as of the last ingest; nothing without one.

    Raises:
        UserCodeError: The function failed, or its result is not JSON.
    """
    part = f"source:{source.text}"
    if declared(source)["identity"] is None:
        return {}
    return {part: json_of(source, "identity") if last is None else last.get(part)}


def arrived(source: Source) -> Any:
    """Return what the function `growth` of a row, or `arrived` beside a function, returns, or None if there is none.

    Raises:
        UserCodeError: The function failed, or its result is not JSON.
    """
    return json_of(source, "growth") if _says_growth(source) else None


def growth(source: Source, before: LastIngest, hashes: Hashes, _: float) -> Arrival | None:
    """Return what came since the last ingest, by `arrived`; without it, whether the identity is new.

    A number that a row returns counts rows.

    Raises:
        UserCodeError: A function failed, or its result is not JSON.
    """
    if not _says_growth(source):
        parts = identity(source, hashes, None)
        return _arrival(parts, {name: before.parts.get(name) for name in parts}, source, before)
    now, earlier = arrived(source), before.result.get(ARRIVED)
    arrival = _arrival(now, earlier, source, before)
    if arrival is None or type(now) is not int or type(earlier) is not int or not is_row(source.text, FORM.name):
        return arrival
    return Arrival(arrival.change, f"{source.text}: {now - earlier:+,} rows", now - earlier)


def is_read_again(source: Source) -> bool:
    """Return whether nothing but reading tells if a source changed."""
    return declared(source)["identity"] is None


def json_of(source: Source, key: str) -> Any:
    """Return what a function of a source returns, JSON.

    Raises:
        UserCodeError: The function failed, or its result is not JSON.
    """
    value = _called(source, key)
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise UserCodeError(
            f"{source.text}: {key}: gave {type(value).__name__}, expected a JSON value: {error}"
        ) from error


def _says_growth(source: Source) -> bool:
    if is_row(source.text, FORM.name):
        return declared(source)["growth"] is not None
    file = references.source_file(source.text, source.base)
    return file is not None and file.is_file() and f"def {ARRIVED}(" in file.read_text(errors="replace")


def _called(source: Source, key: str, **offered: Any) -> Any:
    """Call a function of a source with those arguments of `project` and `offered` that it takes."""
    if is_row(source.text, FORM.name):
        row = checked_row(references.resolve(source.text, source.base), FORM, f"{KEY}: {source.text}")
        function, reference = row[key], f"{source.text}.{key}"
    else:
        reference = source.text if key == "read" else f"{source.text.rpartition(':')[0]}:{ARRIVED}"
        function = references.resolve(reference, source.base)
    return references.call(function, reference, **_wanted(function, reference, {**offered, "project": source.base}))


def _arrival(now: Any, earlier: Any, source: Source, before: LastIngest) -> Arrival | None:
    if now is None or earlier is None or now == earlier:
        return None
    are_lists = isinstance(now, list) and isinstance(earlier, list)
    new = [part for part in now if part not in earlier] if are_lists else []
    parts = ", ".join(map(str, new[:_SHOWN]))
    text = f"came at {source.text}: {parts}" if new else f"{source.text} has changed"
    return Arrival({"before": before.key, "now": now}, text)


def _wanted(function: Callable[..., Any], reference: str, offered: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    needed = [
        name for name, parameter in parameters.items() if parameter.default is parameter.empty and name not in offered
    ]
    if needed:
        raise UserCodeError(
            f"{KEY} {reference}: takes {', '.join(needed)}, expected no argument but `fetch` (a package source -> "
            "path), `project` (the spec's folder), `read_source` and `read_r` (a path -> its content): rename it, or "
            "give it a default"
        )
    return {name: value for name, value in offered.items() if name in parameters}
