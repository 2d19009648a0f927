"""The rollback guard: watches versions that were promoted or canaried, and decides when to roll back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from models.project_spec.serve import serve_rules_of
from models.serving.auto_rollback import fallen, trouble_of
from models.serving.releases import Release
from tasks.release.deployment import CountExchange
from tasks.release.shared_state import VersionOutcomes, WorkerReport
from tasks.state import findings

if TYPE_CHECKING:
    from models.monitoring.report import MonitoringReport


class RollbackGuard:
    """The rollback guard of one project.

    Args:
        state: The project's folder under `.loopline/projects/`.
        versions: The folder with the project's versions.
        exchange: The exchange with other servers; None: there are none.
    """

    def __init__(self, state: Path, versions: Path, exchange: CountExchange | None = None) -> None:
        self._state, self._versions, self._exchange = state, versions, exchange
        self._by_worker: dict[str, dict[str, VersionOutcomes]] = {}
        self._before: dict[str, VersionOutcomes] = {}
        self._generation = -1
        self._findings: MonitoringReport | None = None
        self._seen: int | None = None

    def tallies(self) -> dict[str, VersionOutcomes]:
        """Return each version's outcomes since the release began, in all workers here, also in those that ended."""
        return {
            version: total.minus(self._before.get(version, VersionOutcomes()))
            for version, total in self._totals().items()
        }

    def look(self, release: Release, reports: list[WorkerReport]) -> tuple[str, str] | None:
        """Return the version to roll back, and why; None if there is none."""
        for report in reports:
            process = report.process
            self._by_worker[f"{process['pid']}/{process['started']}"] = report.tallies
        if release.generation != self._generation:
            self._generation, self._before = release.generation, self._totals()
        counts_of_others: Mapping[str, VersionOutcomes] = {}
        if self._exchange is None:
            self._read_findings()
        else:
            self._exchange.offer(release, self.tallies())
            self._findings, counts_of_others = self._exchange.report, self._exchange.others(release)
        canary = release.canary.version if release.canary else None
        previous = release.previous if _came_after(release.stable, release.previous) else None
        for version, before in ((canary, release.stable), (release.stable, previous)):
            if version is None or before is None:
                continue
            counts = (
                self.tallies().get(version, VersionOutcomes()).plus(counts_of_others.get(version, VersionOutcomes()))
            )
            trouble = self._trouble(version, before, release.since, counts)
            if trouble:
                return version, trouble
        return None

    def _trouble(self, version: str, before: str, since: float, counts: VersionOutcomes) -> str | None:
        rule = serve_rules_of(self._versions / version).return_on
        trouble = trouble_of(counts, rule)
        if trouble is None and rule.metric and self._findings is not None:
            trouble = fallen(self._findings, version, before, since)
        return trouble

    def _totals(self) -> dict[str, VersionOutcomes]:
        totals: dict[str, VersionOutcomes] = {}
        for tallies in self._by_worker.values():
            for version, tally in tallies.items():
                totals[version] = totals.get(version, VersionOutcomes()).plus(tally)
        return totals

    def _read_findings(self) -> None:
        path = self._state / findings.FINDINGS_FILE
        seen = path.stat().st_mtime_ns if path.exists() else None
        if seen != self._seen:
            self._seen, self._findings = seen, findings.load(self._state)


def _came_after(version: str | None, before: str | None) -> bool:
    """Return whether a version was promoted over the other; a version that was rolled back gets no traffic again."""
    return version is not None and before is not None and int(before) < int(version)
