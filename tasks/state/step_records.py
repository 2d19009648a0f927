"""Records of finished steps, the step cache: rows of the state database.

A record counts only while each of its outputs exists with the recorded hash.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from models.files import Hashes
from models.pipeline.keys import Parts
from models.pipeline.records import StepRecord
from tasks.host import database

if TYPE_CHECKING:
    from sqlalchemy import Select

    from tasks.host.leases import Lease

PAGE = 64
"""Number of records that are read at once; no page of the overview shows more."""
_BEYOND = 2**31 - 1  # a number that no row has


class StepRecords:
    """The records of one project.

    Args:
        state: The project's folder under `.loopline/projects/`.
        workspace: The workspace's root, to which the names of outputs are relative.
    """

    def __init__(self, state: Path, workspace: Path) -> None:
        self._state = state
        self._workspace = workspace

    def find(self, step: str, key: str) -> StepRecord | None:
        """Return the record of a step and key, or None; `broken` checks whether its outputs still exist."""
        return next(self._newest(step, key=key), None)

    def latest(self, step: str) -> StepRecord | None:
        """Return the step's record that was saved last, with any key."""
        return next(self._newest(step, most=1), None)

    def newest(self, step: str) -> Iterator[StepRecord]:
        """Yield the step's records, last saved first; they are read in pages."""
        return self._newest(step)

    def alike(self, step: str, parts: Parts, but: str) -> StepRecord | None:
        """Return the step's newest record with the same parts except the part `but`, which it must have."""
        wanted = {name: value for name, value in parts.items() if name != but}
        same = (
            record
            for record in self.newest(step)
            if but in record.parts and {name: value for name, value in record.parts.items() if name != but} == wanted
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
        with database.writing(self._state.parents[1]) as connection:
            if lease:
                lease.check(connection)
            database.upsert(connection, step_records, {**mine, "content": database.plain(record)}, by=[*mine])

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

    def _newest(self, step: str, most: int = PAGE, **key: str) -> Iterator[StepRecord]:
        values = {"project": self._state.name, "step": step, "most": most, "before": _BEYOND, **key}
        while True:
            with database.reading(self._state.parents[1]) as connection:
                page = connection.execute(_newest_rows(*key), values).all()
            for row in page:
                with contextlib.suppress(ValidationError):  # of another form: the step counts as not done
                    yield StepRecord.model_validate(row.content)
            if len(page) < most:
                return
            values["before"] = page[-1].number


@functools.cache
def _newest_rows(*key: str) -> Select[tuple[int, Any]]:
    """Return the statement for a page of records; to build it costs more than to execute it."""
    from sqlalchemy import bindparam, select

    from tasks.host.tables import step_records

    same = [step_records.c[name] == bindparam(name) for name in ("project", "step", *key)]
    rows = select(step_records.c.number, step_records.c.content)
    rows = rows.where(*same, step_records.c.number < bindparam("before"))
    return rows.order_by(step_records.c.number.desc()).limit(bindparam("most"))
