"""The versions of the data that a workspace's records name, with those that a clean-up has withdrawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy import select

from models.pipeline.records import StepRecord
from models.report.data_pages.page import DataVersion
from tasks.gc.snapshot import WITHDRAWN
from tasks.host import database
from tasks.host.tables import step_records, versions
from tasks.state.step_records import newest_records
from tasks.state.versions import versions_of

HASH = re.compile(r"[A-Za-z0-9_-]{1,64}(\.dir)?")
"""DVC's hashes, and nothing that a database or a path understands otherwise."""
STEP, TAG = "version", "loopline.dataset"


def newest_data(root: Path, projects: Sequence[str], limit: int) -> dict[str, list[DataVersion]]:
    """Return the versions of the data of projects, newest first, at most `limit` of each.

    Args:
        root: The workspace's state folder, `.loopline`.
        projects: The projects; those without data have an empty list.
        limit: The number of the last records that are read of each.
    """
    records = newest_records(root, projects, STEP, limit)
    return {name: _with_versions(root, name, _once(name, records.get(name, ()))) for name in projects}


def find_data(root: Path, data_hash: str) -> DataVersion | None:
    """Return the version of the data with this hash of its prepared or raw data; None: nothing names it.

    Args:
        root: The workspace's state folder, `.loopline`.
        data_hash: DVC's hash.
    """
    if not HASH.fullmatch(data_hash):
        return None
    text = database.text(step_records.c.content)
    rows = select(step_records.c.project, step_records.c.step, text)
    rows = rows.where(step_records.c.step.in_([STEP, f"{WITHDRAWN}{STEP}"]), text.element.contains(f'"{data_hash}"'))
    with database.reading(root) as connection:
        named = connection.execute(rows.order_by(step_records.c.number.desc())).all()
    for row in sorted(named, key=lambda row: row.step != STEP):  # a record that counts before a withdrawn one
        record = StepRecord.model_validate_json(row.content)
        if data_hash in (record.result.get("prepared"), record.result.get("raw")):
            version = replace(_of_record(row.project, record), is_removed=row.step != STEP)
            return _with_versions(root, row.project, [version])[0]
    return _of_tags(root, data_hash)


def _of_tags(root: Path, data_hash: str) -> DataVersion | None:
    """Return the data that a model version alone names."""
    text = database.text(versions.c.tags)
    rows = select(versions.c.project, versions.c.tags, versions.c.at).where(text.element.contains(f'"{data_hash}"'))
    with database.reading(root) as connection:
        row = connection.execute(rows.order_by(versions.c.at)).first()
    if row is None or row.tags.get(TAG) != data_hash:
        return None
    tags = row.tags
    loop_id = tags.get("loopline.loop_id", "")
    version = DataVersion(row.project, data_hash, tags.get("loopline.raw", ""), loop_id, row.at, is_removed=True)
    return _with_versions(root, row.project, [version])[0]


def _once(project: str, records: Iterable[StepRecord]) -> list[DataVersion]:
    """Return the data of records, newest first, each once: with the loop that made it first."""
    data: dict[str, DataVersion] = {}
    for record in records:
        version = _of_record(project, record)
        earlier = data.get(version.data)
        data[version.data] = version if earlier is None or version.created < earlier.created else earlier
    return [*data.values()]


def _of_record(project: str, record: StepRecord) -> DataVersion:
    result = record.result
    return DataVersion(
        project,
        str(result.get("prepared", "")),
        str(result.get("raw", "")),
        record.loop_id,
        record.finished,
        rows=result.get("rows") or {},
        num_columns=len(result.get("schema") or ()),
    )


def _with_versions(root: Path, project: str, data: Sequence[DataVersion]) -> list[DataVersion]:
    """Return the data with the model versions that were trained on it."""
    trained: dict[str, list[str]] = {}
    for version in versions_of(root, project) if data else ():
        trained.setdefault(version.tags.get(TAG, ""), []).append(version.number)
    return [replace(version, versions=_by_number(trained, version.data)) for version in data]


def _by_number(trained: Mapping[str, Sequence[str]], data_hash: str) -> list[str]:
    return sorted(trained.get(data_hash, ()), key=lambda number: (len(number), number))
