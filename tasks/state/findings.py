"""The latest monitoring report of a project: a file, and with a shared state database a row that others read."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from models.errors import StoreError
from models.files import ParsedFiles, write_text
from tasks.host import database

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from models.monitoring.report import MonitoringReport

FINDINGS_FILE = Path("monitoring") / "monitoring.json"
_reports: ParsedFiles[MonitoringReport | None] = ParsedFiles()


def save(state: Path, report: MonitoringReport) -> None:
    """Store the report of a monitoring run.

    Args:
        state: The project's folder under `.loopline/projects/`.
        report: The report.

    Raises:
        StoreError: The disk or the state database cannot be used.
    """
    write_text(state / FINDINGS_FILE, report.model_dump_json(indent=1) + "\n")
    if database.is_shared():
        from tasks.host.tables import monitoring_reports

        row = {"project": state.name, "at": report.at, "content": database.plain(report)}
        with database.writing(state.parents[1]) as connection:
            database.upsert(connection, monitoring_reports, row)


def load(state: Path) -> MonitoringReport | None:
    """Return the latest report, of any machine; None if there is none, or one of a Loopline with another format."""
    with contextlib.suppress(OSError, StoreError):
        if not database.is_shared():
            path = state / FINDINGS_FILE
            return _reports.of(path, lambda: _parsed(path.read_bytes()))
        with database.reading(state.parents[1]) as connection:
            return newer_than(None, state.name, connection)
    return None


def newer_than(report: MonitoringReport | None, project: str, connection: Connection) -> MonitoringReport | None:
    """Return a project's report in the shared database, if it is newer than this one; else this one."""
    from sqlalchemy import select

    from tasks.host.tables import monitoring_reports as table

    newest = select(database.text(table.c.content)).where(table.c.project == project)
    content = connection.scalar(newest.where(table.c.at > report.at) if report else newest)
    return (_parsed(content) if content else None) or report


def _parsed(content: str | bytes) -> MonitoringReport | None:
    from models.monitoring.report import MonitoringReport

    try:
        return MonitoringReport.model_validate_json(content)
    except ValidationError:
        return None
