"""The pages of a project's versions: all of them over time, and one with its verdict, its loop and its pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from models.report import pages
from models.report.facts import LastLoop
from models.report.line_chart import Line, line_chart
from models.report.overview_page import FILTERS, Link
from models.serving.registry import ChampionMove, RegisteredVersion


@dataclass(frozen=True)
class VersionSummary:
    """A version: `role` is champion, challenger, or empty; `registered` is in Unix seconds."""

    version: RegisteredVersion
    registered: float
    role: str = ""
    moves: Sequence[ChampionMove] = ()
    links: Sequence[Link] = ()


def render_version(project: str, facts: VersionSummary, last: LastLoop, now: float, logout: str = "") -> str:
    """Return the page of a version."""
    return _render("version", project, last, now, logout, facts=facts)


def render_versions(
    project: str, versions: Sequence[VersionSummary], last: LastLoop, now: float, logout: str = ""
) -> str:
    """Return the page of all versions, newest first, with their metric over time.

    Args:
        project: The project.
        versions: Oldest first.
        last: The project's last loop, for a banner while it runs.
        now: Unix time, seconds.
        logout: The token of the form that ends the session.
    """
    return _render("versions", project, last, now, logout, versions=[*reversed(versions)], chart=trend(versions))


def trend(versions: Sequence[VersionSummary]) -> Markup | None:
    """Draw the metric on frozen test rows by version with its interval; None for fewer than two.

    A metric that the goal no longer names is left out.
    """
    judged = [facts.version for facts in versions if facts.version.verdict and facts.version.number.isdecimal()]
    verdicts = [(int(version.number), version.verdict) for version in judged if version.verdict]
    same = [(number, verdict) for number, verdict in verdicts if verdict.metric == verdicts[-1][1].metric]
    points = [(number, verdict.challenger.value) for number, verdict in same if verdict.challenger.value is not None]
    if len(points) < 2:
        return None
    spans = [
        (number, verdict.challenger.low, verdict.challenger.high)
        for number, verdict in same
        if verdict.challenger.low is not None and verdict.challenger.high is not None
    ]
    metric = same[-1][1].metric
    return line_chart([Line(metric, points, spans)], f"{metric} on test rows", "version")


def _render(template: str, project: str, last: LastLoop, now: float, logout: str, **values: Any) -> str:
    return pages.render(
        f"overview/{template}.html.j2",
        filters=FILTERS,
        project=project,
        running=last,
        now=now,
        logout=logout,
        interval=pages.interval,
        **values,
    )
