"""Automatic rollback: too many errors, too high latency, or a realised metric that fell."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from models.project_spec.serve import ReturnOn

if TYPE_CHECKING:
    from models.monitoring.report import MonitoringReport, WindowReport

SLOW_SHARE = 0.05
"""Share of answers that may take longer than the spec's latency: the limit is for the 95th percentile."""
Z = 3.0
"""Standard deviations of certainty: a rate exactly at its limit is called too high in about 1 of 700 checks."""


class VersionCounts(Protocol):
    """The counts of a version's answers since it went live."""

    answers: int
    failed: int
    slow: int


def at_least(count: int, total: int) -> float:
    """Return a lower bound of the share `count / total` that allows for small samples.

    Source: Wilson (1927), the lower end of the score interval.
    """
    if total == 0:
        return 0.0
    share, z2 = count / total, Z * Z
    centre = share + z2 / (2 * total)
    spread = Z * math.sqrt(share * (1 - share) / total + z2 / (4 * total * total))
    return min(share, max(0.0, (centre - spread) / (1 + z2 / total)))  # rounding gives slightly more than 0 for 0


def trouble_of(counted: VersionCounts, rule: ReturnOn) -> str | None:
    """Return the reason why a version is rolled back for its errors or latency; None if it is not."""
    if rule.errors is not None and at_least(counted.failed, counted.answers) > rule.errors:
        share = f"{counted.failed} of {counted.answers} answers failed"
        return f"{share} in the model, surely more than {rule.errors:.3g} of them"
    if rule.latency_ms is not None and at_least(counted.slow, counted.answers) > SLOW_SHARE:
        share = f"{counted.slow} of {counted.answers} answers"
        return f"{share} took longer than {rule.latency_ms:g} ms a row, surely more than {SLOW_SHARE:.0%} of them"
    return None


def fallen(findings: MonitoringReport, version: str, before: str, since: float) -> str | None:
    """Return the reason why a version is rolled back for its metric: it decayed, and the previous version's had not.

    Args:
        findings: The monitoring report.
        version: The version to check.
        before: The previous version, which would replace it.
        since: When the version went live; Unix time. Windows that began before are ignored.
    """
    now = [window for window in _measured(findings, version) if window.begin >= since]
    past = _measured(findings, before)
    if not now or not now[-1].decayed or (past and past[-1].decayed):
        return None
    value = now[-1].realised.value if now[-1].realised else None
    metric = findings.metric or "metric"
    return f"its realised {metric} fell to {value:.4g} over {now[-1].num_measured} labelled predictions"


def _measured(findings: MonitoringReport, version: str) -> list[WindowReport]:
    return [
        window
        for window in findings.windows
        if window.version == version and window.whole and window.realised is not None
    ]
