"""The latest monitoring report of a project: a file, and with a shared state database a row that others read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from models.errors import StoreError
from models.files import write_text
from tasks.host import database

if TYPE_CHECKING:
    from models.monitoring.report import MonitoringReport

FINDINGS_FILE = Path("monitoring") / "monitoring.json"


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
    from models.monitoring.report import MonitoringReport

    try:
        content = _shared(state) if database.is_shared() else (state / FINDINGS_FILE).read_bytes()
        return MonitoringReport.model_validate_json(content) if content else None
    except (OSError, StoreError, ValidationError):
        return None


def _shared(state: Path) -> str | None:
    from sqlalchemy import select

    from tasks.host.tables import monitoring_reports

    statement = select(database.text(monitoring_reports.c.content)).where(monitoring_reports.c.project == state.name)
    with database.reading(state.parents[1]) as connection:
        return connection.scalar(statement)
