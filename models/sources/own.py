"""A source of a team: a function, or a row of functions (`SOURCE`), beside the spec or in an installed package.

| a row has | it is called |
|---|---|
| `read` | when `ingest` runs; returns a data frame, an Arrow table or a path |
| `identity` | by `plan`, and before each loop: JSON that changes when the source does; `ingest` runs again then |
| `growth` | by monitoring, and when `ingest` runs: a number of rows, or a list of what there is; default: `identity` |
| `header` | never: a list of the names of the columns, for checks before a run |

Each function may take `project` (the spec's folder) and `fetch` (a package source -> path; `read` alone).
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
from models.project_spec.row_source import RowForm, RowKey, checked_row, is_function, is_row, read_row
from models.sources.source import Arrival, Fetch, LastIngest, Loaded, Parts, Source

KEY = "data.source"
ARRIVED = "arrived"
"""The function beside a source function, and the field of ingest's result that holds what it returned."""
_SHOWN = 5


def _are_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


FORM = RowForm(
    "SOURCE",
    {
        "read": RowKey("a function that returns a data frame, an Arrow table or a path", is_function),
        "identity": RowKey("a function that returns JSON, which changes when the source does", is_function, None),
        "growth": RowKey("a function that returns a number of rows, or a list of what there is", is_function, None),
        "header": RowKey("a list of the names of the columns", _are_names, None),
    },
)


def is_source_row(text: str) -> bool:
    """Return whether `data.source` names a row, by its name: `./warehouse.py:SOURCE` or `acme.data:ORDERS_SOURCE`."""
    return is_row(text, FORM.name)


def declared(source: Source) -> dict[str, Any]:
    """Return a row as its file says, without running it.

    Raises:
        UsageError: There is no such row, or it has not the form.
    """
    return read_row(source.text, source.base, FORM, KEY)


def no_path(source: Source) -> Path | None:
    """Return None: a row lies nowhere on this machine; check its form.

    Raises:
        UsageError: See `declared`.
    """
    declared(source)
    return None


def header(source: Source) -> list[str] | None:
    """Return the columns that a row names, or None."""
    names = declared(source)["header"]
    return None if names is None else [*names]


def read_by_function(source: Source, fetch: Fetch) -> Loaded:
    """Return what a source function returns."""
    return _read(references.resolve(source.text, source.base), source, fetch)


def read_by_row(source: Source, fetch: Fetch) -> Loaded:
    """Return what the function `read` of a row returns."""
    return _read(_row(source)["read"], source, fetch)


def identity(source: Source, _: Hashes, last: Parts | None) -> Parts:
    """Return what the function `identity` of a row returns, or as of the last ingest; nothing without one.

    Raises:
        UserCodeError: The function failed, or its result is not JSON.
    """
    if declared(source)["identity"] is None:
        return {}
    part = f"source:{source.text}"
    return {part: asked_identity(source) if last is None else last.get(part)}


def asked_identity(source: Source) -> Any:
    """Return what the function `identity` of a row returns, JSON.

    Raises:
        UserCodeError: The function failed, or its result is not JSON.
    """
    return _json(_row(source)["identity"], f"{source.text}.identity", source)


def arrived_by_function(source: Source) -> Any:
    """Return the current result of the function `arrived` beside a source function, or None if there is none.

    Raises:
        UserCodeError: The function failed, or its result is not JSON.
    """
    file = references.source_file(source.text, source.base)
    if file is None or not file.is_file() or f"def {ARRIVED}(" not in file.read_text(errors="replace"):
        return None
    reference = f"{source.text.rpartition(':')[0]}:{ARRIVED}"
    return _json(references.resolve(reference, source.base), reference, source)


def arrived_by_row(source: Source) -> Any:
    """Return what the function `growth` of a row returns, or None if there is none.

    Raises:
        UserCodeError: The function failed, or its result is not JSON.
    """
    if declared(source)["growth"] is None:
        return None
    return _json(_row(source)["growth"], f"{source.text}.growth", source)


def growth_of_function(source: Source, before: LastIngest, _: Hashes, __: float) -> Arrival | None:
    """Return what the function `arrived` says that came."""
    return _arrival(arrived_by_function(source), before.result.get(ARRIVED), source, before)


def growth_of_row(source: Source, before: LastIngest, hashes: Hashes, _: float) -> Arrival | None:
    """Return what the function `growth` says that came, a number counts rows; without one, whether the identity is new.

    Raises:
        UserCodeError: A function failed, or its result is not JSON.
    """
    if declared(source)["growth"] is None:
        parts = identity(source, hashes, None)
        return _arrival(parts, {name: before.parts.get(name) for name in parts}, source, before)
    now, earlier = arrived_by_row(source), before.result.get(ARRIVED)
    arrival = _arrival(now, earlier, source, before)
    if arrival is None or type(now) is not int or type(earlier) is not int:
        return arrival
    return Arrival(arrival.change, f"{source.text}: {now - earlier:+,} rows", now - earlier)


def is_row_read_again(source: Source) -> bool:
    """Return whether nothing but reading tells if a row's source changed."""
    return declared(source)["identity"] is None


def _row(source: Source) -> dict[str, Any]:
    return checked_row(references.resolve(source.text, source.base), FORM, f"{KEY}: {source.text}")


def _read(function: Callable[..., Any], source: Source, fetch: Fetch) -> Loaded:
    loaded = _call(function, source.text, source.base, fetch=fetch)
    return Loaded(source.base / loaded if isinstance(loaded, (str, Path)) else loaded, f"{KEY} {source.text}")


def _arrival(now: Any, earlier: Any, source: Source, before: LastIngest) -> Arrival | None:
    if now is None or earlier is None or now == earlier:
        return None
    are_lists = isinstance(now, list) and isinstance(earlier, list)
    new = [part for part in now if part not in earlier] if are_lists else []
    parts = ", ".join(map(str, new[:_SHOWN]))
    text = f"came at {source.text}: {parts}" if new else f"{source.text} has changed"
    return Arrival({"before": before.key, "now": now}, text)


def _json(function: Callable[..., Any], reference: str, source: Source) -> Any:
    value = _call(function, reference, source.base)
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise UserCodeError(f"{reference}: gave {type(value).__name__}, expected a JSON value: {error}") from error


def _call(function: Callable[..., Any], reference: str, base: Path, **offered: Any) -> Any:
    """Call a function of a source with those arguments of `project` and `offered` that it takes.

    Raises:
        UserCodeError: The function failed, or requires other arguments.
    """
    return references.call(function, reference, **_wanted(function, reference, {**offered, "project": base}))


def _wanted(function: Callable[..., Any], reference: str, offered: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    needed = [
        name for name, parameter in parameters.items() if parameter.default is parameter.empty and name not in offered
    ]
    if needed:
        raise UserCodeError(
            f"{KEY} {reference}: takes {', '.join(needed)}, expected no argument but `fetch` (a package source -> "
            "path) and `project` (the spec's folder): rename it, or give it a default"
        )
    return {name: value for name, value in offered.items() if name in parameters}
