"""The page of a project's release: which versions answer, how each does, and the forms that begin or end a trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from models.judge.verdict import Estimate
from models.report import pages
from models.report.facts import ProjectFacts
from models.report.overview_page import FILTERS
from models.serving.registry import ChampionMove
from models.serving.releases import ReleasePlan

if TYPE_CHECKING:
    from models.serving.shadow_comparison import ShadowComparison

ROLE_COLOURS = {"stable": "green", "canary": "amber", "refused": "red", "returned": "red"}


@dataclass(frozen=True)
class ReleasedVersion:
    """A version in use: its role, its share of the requests (0 to 1), its outcomes, and the metric on labelled rows."""

    version: str
    role: str
    share: float
    answers: int
    failed: int
    slow: int
    realised: Estimate | None = None
    state: str = ""
    reason: str = ""


@dataclass(frozen=True)
class ReleaseFacts:
    """The state of a release.

    Attributes:
        project: With the champion, whose plan is shown.
        choices: Versions that may be tried, newest first.
        read_at: When it was read; Unix time.
        versions: Those in use.
        workers: Processes that answer on this machine.
        servers: Live ones of the deployment, with a shared database; else 0.
        behind: Where servers do not answer as the newest move says.
        comparison: Of the shadow with what was answered.
        journal: Newest first.
        trouble: Why the rest cannot be read; empty if it can.
    """

    project: ProjectFacts
    choices: Sequence[str]
    read_at: float
    versions: Sequence[ReleasedVersion] = ()
    workers: int = 0
    servers: int = 0
    behind: Sequence[str] = ()
    comparison: ShadowComparison | None = None
    journal: Sequence[ChampionMove] = ()
    trouble: str = ""

    @property
    def plan(self) -> ReleasePlan:
        """What is tried beside the champion."""
        return ReleasePlan.of_tags(self.project.champion.tags) if self.project.champion else ReleasePlan()


def render_releases(facts: ReleaseFacts, logout: str = "") -> str:
    """Return the whole page; its figures renew themselves where scripts run."""
    return _render("releases", facts, logout=logout)


def render_live(facts: ReleaseFacts) -> str:
    """Return the part of the page that changes while servers answer."""
    return _render("releases_live", facts)


def _render(template: str, facts: ReleaseFacts, **values: Any) -> str:
    return pages.render(
        f"overview/{template}.html.j2",
        filters=FILTERS,
        facts=facts,
        project=facts.project.name,
        running=facts.project.loop,
        now=facts.read_at,
        interval=pages.interval,
        role_colours=ROLE_COLOURS,
        **values,
    )
