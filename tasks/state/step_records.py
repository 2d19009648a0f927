"""Records of finished steps, the step cache: rows of the state database.

A record counts only while each of its outputs exists with the recorded hash.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from models.files import Hashes
from models.pipeline.keys import Parts, declared, key_of
from models.pipeline.records import StepRecord
from tasks.host import database

if TYPE_CHECKING:
    from sqlalchemy import Row, Select

    from tasks.host.leases import Lease

PAGE = 64
"""Number of records that are read at once; no page of the overview shows more."""
MOST_READ = 3000
"""Number of records that a process keeps parsed, those that the first page reads of 600 projects: 30 kB each, .2 ms."""
_BEYOND = 2**31 - 1  # a number that no row has


class StepRecords:
    """The records of one project.

    Args:
        state: The project's folder under `.loopline/projects/`.
        workspace: The workspace's root, to which the names of outputs are relative.
        latest: The last record of each step that has one, for who looks at one moment: `latest_records` read them.
    """

    def __init__(self, state: Path, workspace: Path, latest: Mapping[str, StepRecord] | None = None) -> None:
        self._state = state
        self._workspace = workspace
        self._latest = latest

    def find(self, step: str, key: str) -> StepRecord | None:
        """Return the record of a step and key, or None; `broken` checks whether its outputs still exist."""
        if self._latest is not None:
            last = self._latest.get(step)
            if last is None or last.key == key:
                return last
        return next(self._newest(step, key=key), None)

    def of_parts(self, step: str, parts: Parts) -> StepRecord | None:
        """Return what `find` returns for the key of these parts, which is not computed if the last record has them."""
        last = self._latest.get(step) if self._latest else None
        return last if last and last.parts == parts else self.find(step, key_of(parts))

    def latest(self, step: str) -> StepRecord | None:
        """Return the step's record that was saved last, with any key."""
        return next(self.newest(step), None)

    def newest(self, step: str) -> Iterator[StepRecord]:
        """Yield the step's records, last saved first; after the first, they are read in pages."""
        if self._latest is None:
            yield from self._newest(step)
        elif step in self._latest:
            yield self._latest[step]
            yield from itertools.islice(self._newest(step), 1, None)

    def recent(self, step: str) -> Iterator[StepRecord]:
        """Yield the step's records, last saved first, at most a page of them."""
        return itertools.islice(self.newest(step), PAGE)

    def alike(self, step: str, parts: Parts, but: str) -> StepRecord | None:
        """Return the step's newest record with the same declared parts except the part `but`, which it must have."""
        inputs = {name: value for name, value in parts.items() if name != but}
        same = (
            record
            for record in self.newest(step)
            if but in record.parts
            and {name: value for name, value in declared(record.parts).items() if name != but} == inputs
        )
        return next(same, None)

    def save(self, record: StepRecord, lease: Lease | None = None) -> None:
        """Save a record; the step then counts as done.

        Raises:
            LeaseLostError: Another process has taken over the loop.
            StoreError: The database cannot be written.
        """
        from tasks.host.tables import step_records

        mine = {"project": self._state.name, "step": record.step, "key": record.key}
        row = {**mine, "content": database.plain(record)}
        with database.writing(self._state.parents[1]) as connection:
            if lease:
                lease.check(connection)
            database.upsert(connection, step_records, row, key_columns=[*mine])

    def broken(self, record: StepRecord, hashes: Hashes) -> str | None:
        """Return why the record no longer counts (`output missing: ...`), or None if it counts."""
        for name, digest in record.outputs.items():
            path = self._workspace / name
            if not path.exists():
                return f"output missing: {name}"
            if hashes.of(path) != digest:
                return f"output changed: {name}"
        return None

    def path(self, name: str) -> Path:
        """Return the path of an output named in a record."""
        return self._workspace / name

    def name(self, path: Path) -> str:
        """Return a path's name in records: relative to the workspace if it is inside."""
        inside = path.is_relative_to(self._workspace)
        return path.relative_to(self._workspace).as_posix() if inside else str(path)

    def _newest(self, step: str, **key: str) -> Iterator[StepRecord]:
        values = {"project": self._state.name, "step": step, "before": _BEYOND, **key}
        for limit in itertools.chain([1], itertools.repeat(PAGE)):
            with database.reading(self._state.parents[1]) as connection:
                page = connection.execute(_newest_rows(*key), {**values, "most": limit}).all()
            for row in page:
                if record := _read(row.content):
                    yield record
            if len(page) < limit:
                return
            values["before"] = page[-1].number


def latest_records(root: Path, projects: Sequence[str], steps: Sequence[str]) -> dict[str, dict[str, StepRecord]]:
    """Return the last record of each step of projects, by project and step; what was never done is left out.

    `root` is the workspace's state folder, `.loopline`.
    """
    records: dict[str, dict[str, StepRecord]] = {project: {} for project in projects}
    for row in _newest_of(root, projects, steps, 1):
        state = root / "projects" / row.project
        record = _read(row.content) or StepRecords(state, root.parent).latest(row.step)
        if record:
            records[row.project][row.step] = record
    return records


def unreadable_records(root: Path, projects: Sequence[str], steps: Sequence[str]) -> list[str]:
    """Return the project and step of each last record that has not the form of today's: the step runs again."""
    rows = _newest_of(root, projects, steps, 1)
    return [f"{row.project} {row.step}" for row in rows if _read(row.content) is None]


def newest_records(root: Path, projects: Sequence[str], step: str, limit: int) -> dict[str, list[StepRecord]]:
    """Return the records of one step of projects, newest first, at most `limit` of each project."""
    records: dict[str, list[StepRecord]] = {}
    for row in _newest_of(root, projects, [step], limit):
        if record := _read(row.content):
            records.setdefault(row.project, []).append(record)
    return records


def recorded_projects(root: Path) -> list[str]:
    """Return the projects that have a record."""
    from sqlalchemy import select

    from tasks.host.tables import step_records

    with database.reading(root) as connection:
        return list(connection.scalars(select(step_records.c.project).distinct()))


def _newest_of(root: Path, projects: Sequence[str], steps: Sequence[str], limit: int) -> Sequence[Row[Any]]:
    from tasks.host.tables import step_records

    with database.reading(root) as connection:
        columns = [step_records.c.project, step_records.c.step, database.text(step_records.c.content)]
        rows = database.newest(step_records.c.number, limit, columns, project=projects, step=steps)
        return connection.execute(rows).all()


@functools.lru_cache(maxsize=MOST_READ)
def _read(content: str) -> StepRecord | None:
    """Return the record, or None if it is of another form: the step counts as not done."""
    try:
        return StepRecord.model_validate_json(content)
    except ValidationError:
        return None


@functools.cache
def _newest_rows(*key: str) -> Select[tuple[int, Any]]:
    """Return the statement for a page of records; to build it costs more than to execute it."""
    from sqlalchemy import bindparam, select

    from tasks.host.tables import step_records

    same = [step_records.c[name] == bindparam(name) for name in ("project", "step", *key)]
    rows = select(step_records.c.number, database.text(step_records.c.content))
    rows = rows.where(*same, step_records.c.number < bindparam("before"))
    return rows.order_by(step_records.c.number.desc()).limit(bindparam("most"))
