"""The overview as HTML: a page of all projects, and a page of one project with its history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from models.judge.gates import signed
from models.monitoring.report import Drift, WindowReport
from models.report import pages
from models.report.data import labelled
from models.report.facts import WHAT_TO_DO, IngestSummary, LoopState, Overview, ProjectFacts, ServiceSummary
from models.report.light import RANK
from models.triggers.signal import Outcome

STYLESHEET = Path(__file__).parent / "templates" / "overview" / "style.css"
TITLES = {"prefect": "Prefect", "mlflow": "MLflow", "optuna": "Optuna", "overview": "this page"}
OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "promoted": ("green", "promoted"),
    "kept": ("", "not promoted"),
    "unchanged": ("", "nothing new"),
    "rejected": ("red", "data rejected"),
    "failed": ("amber", "failed"),
    "cancelled": ("", "cancelled"),
}
MOST_CARDS = 12
"""Of more projects the first page is a table."""
STATE_COLOURS: dict[LoopState, str] = {
    "running": "green", "finished": "green", "failed": "amber", "killed": "amber", "rejected": "red"
}  # fmt: skip
"""The colours of a loop's states, those of the traffic light: what failed still serves, rejected data is worse."""
OF_MODELS = "workflowType=machine_learning"
"""Parameter of MLflow's pages that shows runs and models; without it they show traces of language models."""


@dataclass(frozen=True)
class Link:
    """A link to a further page."""

    name: str
    address: str


def tool_links(project: ProjectFacts, where: Mapping[str, str]) -> list[Link]:
    """Return links to a project in the pages of the tools: its versions, its last loop, its study.

    Args:
        project: The project.
        where: The addresses of the tools' pages, without a slash at the end.
    """
    links = []
    if "mlflow" in where and (project.champion or project.challenger):
        model = f"{where['mlflow']}/#/models/{quote(project.name, safe='')}"
        links.append(Link("versions in MLflow", f"{model}?{OF_MODELS}"))
    if "prefect" in where:
        runs = f"{where['prefect']}/runs"
        flow_run = project.loop.flow_run
        links.append(Link("the last loop in Prefect", f"{runs}/flow-run/{quote(flow_run, safe='')}") if flow_run else
                     Link("runs in Prefect", runs))  # fmt: skip
        if project.waiting:
            links.append(Link("the question in Prefect", f"{runs}/flow-run/{quote(project.waiting.flow_run, safe='')}"))
    if "optuna" in where and project.search.study:
        links.append(Link("trials in Optuna", f"{where['optuna']}/study/{quote(project.search.study, safe='')}"))
    return links


def render_index(overview: Overview, logout: str = "", words: str = "") -> str:
    """Return the page of all projects, the most urgent first: a card each, or of many a table with a filter.

    Args:
        overview: The workspace.
        logout: The token of the form that ends the session; empty for none.
        words: Only projects whose name or state has these words are shown.
    """
    projects = [
        project
        for project in sorted(overview.projects, key=lambda project: RANK[project.light.colour])
        if words.casefold() in f"{project.name} {' '.join(project.summaries)}".casefold()
    ]
    return _render(
        "index",
        overview=overview,
        projects=projects,
        now=overview.at,
        logout=logout,
        words=words,
        most_cards=MOST_CARDS,
    )


def render_project(project: ProjectFacts, now: float, links: Sequence[Link], logout: str = "") -> str:
    """Return the page of one project with its history."""
    return _render("project", project=project, now=now, links=links, logout=logout)


def render_project_live(project: ProjectFacts, now: float, links: Sequence[Link]) -> str:
    """Return the part of the page of one project that changes as a loop begins, runs and ends."""
    return _render("project_live", project=project, now=now, links=links)


def render_confirm(project: str, question: str, lines: Sequence[str], form: Mapping[str, Any], logout: str = "") -> str:
    """Return a page that asks for confirmation. `form`: action, token, word (on the button), fields, back."""
    return _render("confirm", project=project, question=question, lines=lines, logout=logout, **form)


def render_message(title: str, lines: Sequence[str], links: Sequence[Link] = (Link("Go on", "/"),)) -> str:
    """Return a page with the result of an action, or the reason why it was not done, and where to go next."""
    return _render("message", title=title, lines=lines, links=links, logout="")


def render_login(token: str, onward: str, *, wrong: bool) -> str:
    """Return the login form for the workspace's token."""
    return _render("login", token=token, next=onward, wrong=wrong, logout="")


def front_page(service: str, address: str) -> str:
    """Return the start page of a service. `address`: the address at which it listens."""
    return f"{address.rstrip('/')}/#/experiments?{OF_MODELS}" if service == "mlflow" else address


def clock(seconds: float) -> str:
    """Return a time as text: `2026-11-21 18:04:25 UTC`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def size(size_bytes: int) -> str:
    """Return bytes as text in a unit that keeps the number short, in steps of 1000."""
    number, units = float(size_bytes), ["B", "kB", "MB", "GB", "TB", "PB"]
    while number >= 999.5 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.3g} {units[0]}"


def latest(project: ProjectFacts) -> WindowReport | None:
    """Return the champion's last complete window."""
    return project.windows[-1] if project.windows else None


def measured(project: ProjectFacts) -> WindowReport | None:
    """Return the champion's last complete window that has enough labels for its metric."""
    return next((window for window in reversed(project.windows) if window.realised), None)


def coverage(window: WindowReport) -> str:
    """Return the share of a window's predictions that have a label now."""
    return _percent(window.num_labels / max(1, window.num_predictions))


def upcoming(project: ProjectFacts) -> str:
    """Return the time of the next loop, or the triggers that may start one."""
    triggers = [trigger.replace("_", " ") for trigger in project.triggers]
    if project.next_loop is None:
        return f"when asked{''.join(f', on {trigger}' for trigger in triggers)}"
    or_else = f", or on {', '.join(triggers)}" if triggers else ""
    return f"{clock(project.next_loop).removesuffix(':00 UTC')} UTC ({project.schedule}){or_else}"


def _render(template: str, **values: Any) -> str:
    return pages.render(
        f"overview/{template}.html.j2",
        filters=FILTERS,
        **values,
        titles=TITLES,
        what_to_do=WHAT_TO_DO,
        interval=pages.interval,
        latest=latest,
        measured=measured,
        coverage=coverage,
        front_page=front_page,
        upcoming=upcoming,
        drift_colour=_drift_colour,
        data_colour=_data_colour,
        labelled=labelled,
        loop_colour=lambda loop: STATE_COLOURS.get(loop.state, ""),
        service_colour=_service_colour,
        outcome_colour=lambda ended: OUTCOMES[ended.outcome][0],
        outcome_words=lambda ended: OUTCOMES[ended.outcome][1],
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _commit(code: str) -> Markup | str:
    """Return a short commit id, the whole one as tooltip; the text after `+` is a hash of uncommitted changes."""
    commit, _, changes = code.partition("+")
    if not commit:
        return "–"
    return Markup('<code title="{}">{}</code>{}').format(
        code, commit[:12], " with uncommitted changes" if changes else ""
    )


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return pages.ago(0.0, max(1.0, seconds)).removesuffix(" ago")


def _drift_colour(drift: Drift) -> str:
    return {"none": "", "warn": "amber", "strong": "red"}["none" if drift.seasonal else drift.level]


def _data_colour(data: IngestSummary) -> str:
    return {"valid": "green", "warned": "amber" if data.failing else "", "rejected": "red", "error": "red"}.get(
        data.status, ""
    )


def _service_colour(service: ServiceSummary) -> str:
    colours = {
        "running": "green",
        "elsewhere": "amber" if service.detail else "green",
        "starting": "amber",
        "backing off": "amber",
        "failed": "red",
    }
    return colours.get(service.state, "")


FILTERS: dict[str, Callable[..., Any]] = {
    "commit": _commit,
    "ago": pages.ago,
    "clock": clock,
    "iso": lambda seconds: datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds"),
    "size": size,
    "percent": _percent,
    "span": _span,
    "signed": lambda value: "–" if value is None else signed(value),
}
