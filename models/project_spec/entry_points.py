"""Names that installed packages give to rows of theirs: an entry point is a name for a reference, and nothing more.

A package declares `late = "acme.costs:METRIC"` in the group `loopline.metrics`, and a spec may say `metric: late`. The
name becomes its reference when a spec is read, so keys, provenance and every check see what they see of a spec that
says the reference. Nothing of the package is imported here.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from models.errors import UsageError
from models.project_spec.references import is_own_code, resolve

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""A name that a spec may use: it has no dot, slash or colon, as files, addresses and references have."""


class Group(NamedTuple):
    """The entry points of one sort of rows.

    Attributes:
        keys: The keys of a spec that may say their names.
        is_ready: The reference of a function (name) -> whether Loopline has a row of that name; empty for none.
    """

    keys: tuple[str, ...]
    is_ready: str = ""


class NamedRow(NamedTuple):
    """An entry point: its name, the reference that it stands for, and the distribution that declares it."""

    name: str
    reference: str
    distribution: str
    version: str

    @property
    def origin(self) -> str:
        """The distribution with its version."""
        return f"{self.distribution} {self.version}"


GROUPS = {
    "loopline.sources": Group(("data.source",)),
    "loopline.families": Group(("model.net", "search.families"), "models.nets.catalogue:is_ready"),
    "loopline.metrics": Group(("goal.metric",), "models.metrics.metrics:is_ready"),
}


def named_rows(group: str) -> dict[str, list[NamedRow]]:
    """Return the entry points of a group by their names, as they are installed here.

    Cost: 15 to 20 ms once a process for all groups, with 320 installed distributions.
    """
    rows: dict[str, list[NamedRow]] = {}
    for point in _points_by_group(tuple(sys.path))[group]:
        name, version = (point.dist.name, point.dist.version) if point.dist else ("an unknown package", "")
        rows.setdefault(point.name, []).append(NamedRow(point.name, point.value, name, version))
    return rows


@functools.cache
def _points_by_group(path: tuple[str, ...]) -> dict[str, metadata.EntryPoints]:
    del path  # where distributions are searched
    points = metadata.entry_points()
    return {group: points.select(group=group) for group in GROUPS}


def trouble(group: str, name: str) -> str:
    """Return why the name of an entry point cannot be used, with the cure; empty if it can.

    Args:
        group: A key of `GROUPS`.
        name: The name of one of its entry points.
    """
    rows = named_rows(group)[name]
    row = rows[0]
    if len({other.distribution for other in rows}) > 1:
        origins = " and ".join(sorted(other.origin for other in rows))
        return f"{name!r} is a name of {origins} ({group}): write the reference, such as {row.reference}"
    if not NAME.fullmatch(name):
        return f"{name!r} of {row.origin} ({group}) is no name: expected letters, digits, _ and -, a letter first"
    if not is_own_code(row.reference):
        return f"{name!r} of {row.origin} ({group}) stands for {row.reference!r}, expected package.module:name"
    if GROUPS[group].is_ready and resolve(GROUPS[group].is_ready, Path())(name):
        return f"{name!r} is Loopline's own, and a name of {row.origin} ({group}): write {row.reference} for that one"
    return ""


def with_references(
    document: Mapping[str, Any], base: Path, refuse: Callable[[str, str], UsageError]
) -> dict[str, Any]:
    """Return the keys of a spec with the references that names of entry points stand for.

    Args:
        document: The keys, unchecked.
        base: The folder of the spec: a file or folder there may have the name of a source.
        refuse: Returns the error for a key and what is wrong with it.

    Raises:
        UsageError: A name stands for several rows, or for one of Loopline's own.
    """
    changed = dict(document)
    for group, key in ((group, key) for group, facts in GROUPS.items() for key in facts.keys):
        block, _, field = key.partition(".")
        values = changed.get(block)
        if not isinstance(values, Mapping) or not isinstance(value := values.get(field), str | list):
            continue

        def reference(text: Any, group: str = group, key: str = key) -> Any:
            if not isinstance(text, str) or not NAME.fullmatch(text) or text not in named_rows(group):
                return text
            reason = trouble(group, text)
            if not reason and group == "loopline.sources" and (base / text).exists():
                origin = named_rows(group)[text][0].origin
                reason = f"{text!r} is a file beside the spec, and a name of {origin}: write ./{text}, or the reference"
            if reason:
                raise refuse(key, reason)
            return named_rows(group)[text][0].reference

        new = [*map(reference, value)] if isinstance(value, list) else reference(value)
        if new != value:
            changed[block] = {**values, field: new}
    return changed
