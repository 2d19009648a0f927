"""`loopline status`: shows the state of every project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flows.console import options
from models.report.data import labelled
from models.report.facts import Overview, ProjectFacts
from models.report.overview_page import TITLES, ago, clock, coverage, front_page, measured, size, upcoming
from models.report.pages import interval, show
from tasks.host import stores
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
        "projects": [_plain_project(one) for one in facts.projects],
    }


def _plain_project(one: ProjectFacts) -> dict[str, Any]:
    head = {"project": one.name, "folder": one.folder, "light": one.light.colour, "light_reason": one.light.reason}
    if one.error:
        return {**head, "error": one.error}
    champion, move = one.champion, one.champion_since
    return {
        **head,
        "state": one.loop.state,
        "step": one.loop.step or None,
        "loop_id": one.loop.loop_id,
        "began": one.loop.began,
        "failure": one.loop.failure or None,
        "registry": one.registry or None,
        "champion": champion.number if champion else None,
        "champion_metric": champion.metric if champion else None,
        "champion_since": move.at if move else None,
        "champion_why": move.reason if move else None,
        "challenger": one.challenger.number if one.challenger else None,
        "decision": one.loop.decision,
        "reasons": one.loop.reasons,
        "owed": one.owed,
        "next_loop": one.next_loop,
        "last_decision": one.decisions[0].model_dump(mode="json") if one.decisions else None,
        "undecided": [signal.model_dump(mode="json") for signal in one.undecided],
        "waiting": one.waiting.model_dump() if one.waiting else None,
        "data": one.data.model_dump(),
        "backtest": one.backtest or None,
        "serving": one.serving.model_dump() if one.serving else None,
        "monitor": one.monitor.model_dump(exclude={"windows"}) if one.monitor else None,
    }


def _print_project(console: Console, one: ProjectFacts, now: float, *, at_length: bool) -> None:
    colour = COLOURS[one.light.colour]
    console.print(f"{SIGNS[one.light.colour]} {one.name}", style=f"bold {colour}", markup=False)
    for reason in one.light.reasons if at_length else one.summaries:
        console.print(f"  {reason}", style="" if one.light.colour == "green" else colour, markup=False)
    for name, text in _lines(one, now, at_length=at_length):
        console.print(f"  {name:<12} {text}", markup=False)
    console.print()


def _lines(one: ProjectFacts, now: float, *, at_length: bool) -> list[tuple[str, str]]:
    if one.error:
        return []
    at = f" at {one.loop.step}" if one.loop.step else ""
    began = f", began {ago(one.loop.began, now)}" if one.loop.began else ""
    lines = [
        ("champion", _champion(one, now)),
        ("last loop", f"{one.loop.state}{at}{began}"),
    ]
    if one.loop.decision and one.loop.reasons:
        lines.append(("verdict", f"{one.loop.decision}: {one.loop.reasons[0]}"))
    window = measured(one)
    if window and window.realised and one.monitor:
        value = f"{one.monitor.metric} {show(window.realised.value)}"
        span = interval(window.realised.low, window.realised.high)
        lines.append(("measured", f"{value} ({span}), {coverage(window)} of its window labelled"))
    if one.decisions:
        last = one.decisions[0]
        lines.append(("decided", f"{last.action}, {ago(last.at, now)}: {'; '.join(last.reasons)}"))
    if one.serving:
        now_or_last = f"workers: {one.serving.workers}" if one.serving.workers else "when it was served last"
        lines.append(("served", f"{one.serving.answers} ({now_or_last})"))
    lines.append(("next loop", upcoming(one)))
    up_to_date = "not known: the registry cannot be read" if one.registry else "up to date"
    lines.append(("plan", f"a run would begin at {one.owed[0]}" if one.owed else up_to_date))
    return lines + (_more(one, now) if at_length else [])


def _more(one: ProjectFacts, now: float) -> list[tuple[str, str]]:
    """Return the lines that only the status of a single project shows."""
    lines = [("data", f"{one.data.dataset or 'none'}{f', {one.data.status}' if one.data.status else ''}")]
    lines += [("", line) for line in [labelled(one.data.feedback)] if line]
    lines += [("failing", line) for line in one.data.failing]
    if one.challenger:
        lines.append(("challenger", f"version {one.challenger.number} ({one.challenger.metric.replace('=', ' ')})"))
    if one.search.trials:
        value = f"{show(one.search.value)}, " if one.search.value is not None else ""
        lines.append(("search", f"{value}{show(one.search.params)} ({one.search.trials} trials)"))
    if one.backtest:
        lines.append(("backtest", f"{one.backtest} (page: .loopline/projects/{one.name}/backtest/backtest.html)"))
    lines += [("move", f"{move.action} to version {move.after}, {ago(move.at, now)}") for move in one.moves[:5]]
    return lines


def _champion(one: ProjectFacts, now: float) -> str:
    if one.champion is None:
        return "not known: the registry cannot be read" if one.registry else "none"
    estimate = one.champion.estimate
    span = f", {interval(estimate.low, estimate.high)}" if estimate and estimate.low is not None else ""
    since = f" since {ago(one.champion_since.at, now)}" if one.champion_since else ""
    return f"v{one.champion.number} ({one.champion.metric.replace('=', ' ')}{span}){since}"


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
