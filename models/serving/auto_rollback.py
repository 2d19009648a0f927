"""Automatic rollback: too many errors, too slow, or a realised metric that fell."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from models.project_spec.serve import ReturnOn

if TYPE_CHECKING:
    from models.monitoring.report import MonitoringReport, WindowReport

SLOW_SHARE = 0.05
"""Of the answers that may take longer than the spec's latency: its 95th percentile is what counts."""
Z = 3.0
"""So sure must one be: looked at again and again, a rate at its limit is called over it about once in 700 looks."""


class VersionCounts(Protocol):
    """Outcomes of a version since it was promoted."""

    answers: int
    failed: int
    slow: int


def at_least(count: int, total: int) -> float:
    """The share that a count is at the least, given how few there are.

    Source: Wilson (1927), the lower end of the score interval.
    """
    if total == 0:
        return 0.0
    share, z2 = count / total, Z * Z
    centre = share + z2 / (2 * total)
    spread = Z * math.sqrt(share * (1 - share) / total + z2 / (4 * total * total))
    return min(share, max(0.0, (centre - spread) / (1 + z2 / total)))  # of none it is a hair more by rounding


def trouble_of(counted: VersionCounts, rule: ReturnOn) -> str | None:
    """The reason to roll a version back by its answers; None if there is none."""
    if rule.errors is not None and at_least(counted.failed, counted.answers) > rule.errors:
        share = f"{counted.failed} of {counted.answers} answers failed"
        return f"{share} in the model, surely more than {rule.errors:.3g} of them"
    if rule.latency_ms is not None and at_least(counted.slow, counted.answers) > SLOW_SHARE:
        share = f"{counted.slow} of {counted.answers} answers"
        return f"{share} took longer than {rule.latency_ms:g} ms a row, surely more than {SLOW_SHARE:.0%} of them"
    return None


def fallen(findings: MonitoringReport, version: str, before: str, since: float) -> str | None:
    """The reason to roll back by the realised metric: the version's metric decayed, its predecessor's had not.

    Args:
        findings: Findings of monitoring.
        version: The one in question.
        before: The one that would take its place.
        since: When the version was promoted; Unix time. Windows that began before do not count.
    """
    now = [window for window in _measured(findings, version) if window.begin >= since]
    past = _measured(findings, before)
    if not now or not now[-1].decayed or (past and past[-1].decayed):
        return None
    value = now[-1].realised.value if now[-1].realised else None
    metric = findings.metric or "metric"
    return f"its realised {metric} fell to {value:.4g} over {now[-1].num_measured} labelled predictions"


def _measured(findings: MonitoringReport, version: str) -> list[WindowReport]:
    return [one for one in findings.windows if one.version == version and one.whole and one.realised is not None]
