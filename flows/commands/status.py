"""`loopline status`: shows the state of every project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flows.console import options
from flows.console.history import looked
from models.report.data import labelled
from models.report.facts import WHAT_TO_DO, Overview, ProjectFacts
from models.report.overview_page import TITLES, clock, coverage, front_page, measured, size, upcoming
from models.report.pages import ago, interval, show
from models.serving.registry import champion_words
from tasks.host import stores
from tasks.loop.champion import first_look
from tasks.operations.overview import overview

if TYPE_CHECKING:
    from rich.console import Console

SIGNS = {"green": "✓", "amber": "!", "red": "✕"}
COLOURS = {"green": "green", "amber": "yellow", "red": "red"}


@click.command()
@click.argument("project", required=False, shell_complete=options.complete_project)
@options.as_json
def command(project: str | None, as_json: bool) -> None:
    """Show every project, or PROJECT: its light and reasons, champion, loops, steps to run; then the services.

    Reads the records only, so it works without any server.

    Example: loopline status --json

    Example: loopline status flights
    """
    workspace = stores.open_workspace()
    first_look(workspace)
    facts = overview(workspace, [workspace.project(project)] if project else None)
    if as_json:
        options.print_json(as_plain(facts))
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for one in facts.projects:
        _print_project(console, one, facts.at, at_length=project is not None)
    for cause in dict.fromkeys(one.registry for one in facts.projects if one.registry and project is None):
        console.print(cause, markup=False)
    _print_platform(console, facts)


def as_plain(facts: Overview) -> dict[str, Any]:
    """Return the overview as plain data for scripts; new versions add keys but never remove any."""
    prefect = facts.services["prefect"].url if "prefect" in facts.services else None
    return {
        "workspace": facts.workspace,
        "prefect": f"{prefect.rstrip('/')}/api" if prefect else None,
        "light": facts.light.colour,
        "reasons": facts.light.reasons,
        "services": {name: service.model_dump() for name, service in facts.services.items()},
        "disk": facts.disk.model_dump(),
        "projects": [_plain_project(project) for project in facts.projects],
    }


def _plain_project(project: ProjectFacts) -> dict[str, Any]:
    head = {
        "project": project.name,
        "folder": project.folder,
        "light": project.light.colour,
        "light_reason": project.light.reason,
    }
    if project.error:
        return {**head, "error": project.error}
    champion, move = project.champion, project.champion_since
    return {
        **head,
        "state": project.loop.state,
        "step": project.loop.step or None,
        "loop_id": project.loop.loop_id,
        "began": project.loop.began,
        "failure": project.loop.failure or None,
        "registry": project.registry or None,
        "mlflow": project.mlflow or None,
        "mlflow_looked": project.mlflow_looked,
        "moves_waiting": sum(lag.num_rows for lag in project.behind if lag.rows == "moves"),
        "behind": [lag._asdict() for lag in project.behind],
        "champion": champion.number if champion else None,
        "champion_metric": champion.metric if champion else None,
        "champion_since": move.at if move else None,
        "champion_why": move.reason if move else None,
        "challenger": project.challenger.number if project.challenger else None,
        "decision": project.loop.decision,
        "reasons": project.loop.reasons,
        "owed": project.owed,
        "next_loop": project.next_loop,
        "last_decision": project.decisions[0].model_dump(mode="json") if project.decisions else None,
        "undecided": [signal.model_dump(mode="json") for signal in project.undecided],
        "waiting": project.waiting.model_dump() if project.waiting else None,
        "data": project.data.model_dump(),
        "backtest": project.backtest or None,
        "serving": project.serving.model_dump() if project.serving else None,
        "monitor": project.monitor.model_dump(exclude={"windows"}) if project.monitor else None,
    }


def _print_project(console: Console, project: ProjectFacts, now: float, *, at_length: bool) -> None:
    colour = COLOURS[project.light.colour]
    console.print(f"{SIGNS[project.light.colour]} {project.name}", style=f"bold {colour}", markup=False)
    for reason in project.light.reasons if at_length else project.summaries:
        console.print(f"  {reason}", style="" if project.light.colour == "green" else colour, markup=False)
    for name, text in _lines(project, now, at_length=at_length):
        console.print(f"  {name:<12} {text}", markup=False)
    console.print()


def _lines(project: ProjectFacts, now: float, *, at_length: bool) -> list[tuple[str, str]]:
    if project.error:
        return []
    step = f" at {project.loop.step}" if project.loop.step else ""
    began = f", began {ago(project.loop.began, now)}" if project.loop.began else ""
    lines = [
        ("champion", _champion(project, now)),
        ("last loop", f"{project.loop.state}{step}{began}"),
    ]
    if project.mlflow:
        lines.append(("MLflow", f"does not follow: {project.mlflow}"))
    for lag in project.behind:
        lines.append((lag.tool, f"{lag.rows} that wait for it: {lag.num_rows}, the oldest {ago(lag.since, now)}"))
    if project.behind:
        lines.append(("", f"what to do: {WHAT_TO_DO}"))
    if project.loop.decision and project.loop.reasons:
        lines.append(("verdict", f"{project.loop.decision}: {project.loop.reasons[0]}"))
    window = measured(project)
    if window and window.realised and project.monitor:
        value = f"{project.monitor.metric} {show(window.realised.value)}"
        span = interval(window.realised.low, window.realised.high)
        lines.append(("measured", f"{value} ({span}), {coverage(window)} of its window labelled"))
    if project.decisions:
        last = project.decisions[0]
        lines.append(("decided", f"{last.action}, {ago(last.at, now)}: {'; '.join(last.reasons)}"))
    if project.serving:
        now_or_last = f"workers: {project.serving.workers}" if project.serving.workers else "when it was served last"
        lines.append(("served", f"{project.serving.answers} ({now_or_last})"))
    lines.append(("next loop", upcoming(project)))
    up_to_date = "not known: the registry cannot be read" if project.registry else "up to date"
    lines.append(("plan", f"a run would begin at {project.owed[0]}" if project.owed else up_to_date))
    return lines + (_more(project, now) if at_length else [])


def _more(project: ProjectFacts, now: float) -> list[tuple[str, str]]:
    """Return the lines that only the status of a single project shows."""
    lines = [("data", f"{project.data.dataset or 'none'}{f', {project.data.status}' if project.data.status else ''}")]
    lines += [("", line) for line in [labelled(project.data.feedback)] if line]
    lines += [("failing", line) for line in project.data.failing]
    if project.challenger:
        lines.append(
            ("challenger", f"version {project.challenger.number} ({project.challenger.metric.replace('=', ' ')})")
        )
    if project.search.trials:
        value = f"{show(project.search.value)}, " if project.search.value is not None else ""
        lines.append(("search", f"{value}{show(project.search.params)} ({project.search.trials} trials)"))
    if project.backtest:
        lines.append(
            ("backtest", f"{project.backtest} (page: .loopline/projects/{project.name}/backtest/backtest.html)")
        )
    if project.moves:
        lines.append(("looked", looked(project.mlflow_looked, now)))
    lines += [
        ("move", f"{move.action}: {champion_words(move.after)}, {ago(move.at, now)}") for move in project.moves[:5]
    ]
    return lines


def _champion(project: ProjectFacts, now: float) -> str:
    if project.champion is None:
        return "not known: the registry cannot be read" if project.registry else "none"
    estimate = project.champion.estimate
    span = f", {interval(estimate.low, estimate.high)}" if estimate and estimate.low is not None else ""
    since = f" since {ago(project.champion_since.at, now)}" if project.champion_since else ""
    return f"v{project.champion.number} ({project.champion.metric.replace('=', ' ')}{span}){since}"


def _print_platform(console: Console, facts: Overview) -> None:
    console.print(f"workspace {facts.workspace}   as of {clock(facts.at)}", markup=False)
    console.print(f"disk      {size(facts.disk.free_bytes)} free of {size(facts.disk.total_bytes)}", markup=False)
    up = {name: service for name, service in facts.services.items() if service.state != "stopped"}
    if not up:
        console.print("platform  down: `loopline up` starts it", markup=False)
    for name, service in up.items():
        detail = f"   {service.detail}" if service.detail else ""
        url = front_page(name, service.url) if service.url else ""
        console.print(f"{TITLES.get(name, name):<9} {service.state:<12} {url}{detail}", markup=False)
