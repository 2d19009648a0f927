"""A backtest from the command line or a flow: ingests the data if needed, replays, and prints the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tasks.host.workspace import Project
from tasks.loop.lifecycle import open_stage
from tasks.loop.loop import Reporter
from tasks.operations.backtest import BacktestRequest, backtest
from tasks.steps import ingest as ingesting

if TYPE_CHECKING:
    from models.backtest.regret import Backtest
    from models.judge.verdict import Estimate

MOST_POLICY = 16


def replay(project: Project, overrides: Sequence[str], request: BacktestRequest, report: Reporter) -> Backtest:
    """Replay the past of a project; ingest its data first if this was never done.

    Raises:
        LooplineError: The error that the ingest or the replay raised.
    """
    if not project.raw.is_file():
        with open_stage(project, report) as loop:
            ingesting.ingest(loop)
    return backtest(project, overrides, request, report)


def print_backtest(result: Backtest, page: Path) -> None:
    """Print the recommendation, a table row per policy, the loops of each policy, and the path of the page."""
    click.secho(f"\n{result.summary}", bold=True)
    mean = f"mean {result.metric}"[:16]
    head = (
        f"{'policy':<{MOST_POLICY}} {mean:>16} {'regret':>9} {'interval':>22} {'loops':>6} {'won':>4} {'device-s':>9}"
    )
    click.secho(f"\n  {head}", dim=True)
    for regret in result.policy_regrets:
        line = (
            f"  {regret.policy[:MOST_POLICY]:<{MOST_POLICY}} {_number(regret.mean.value):>16} "
            f"{_number(regret.regret.value):>9} {_interval(regret.regret):>22} {regret.loops:>6} {regret.won:>4} "
            f"{regret.device_seconds:>9.0f}"
        )
        click.secho(line, bold=regret.policy == result.recommended)
    click.echo()
    for course in result.courses:
        loops = ", ".join(f"{loop.period} ({loop.trigger}: {_outcome_word(loop.outcome)})" for loop in course.loops)
        waits = f"; {len(course.waits)} times decided not to" if course.waits else ""
        click.echo(f"  {course.policy:<{MOST_POLICY}} {course.rule}: {loops or 'no loop'}{waits}")
    click.echo()
    for note in result.notes:
        click.echo(f"  Note: {note}.")
    click.echo(f"  {result.trained} trainings made, {result.reused} reused, {result.seconds:.1f} s. Page: {page}")


def _outcome_word(outcome: str) -> str:
    return {"promoted": "won", "kept": "lost"}.get(outcome, outcome)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _interval(spread: Estimate) -> str:
    return "-" if spread.low is None or spread.high is None else f"{spread.low:+.4f} to {spread.high:+.4f}"


def as_markdown(result: Backtest) -> str:
    """Return the recommendation and the table as Markdown, for an artifact."""
    rows = "\n".join(
        f"| {regret.policy} | {_number(regret.mean.value)} | {_number(regret.regret.value)} | "
        f"{_interval(regret.regret)} | "
        f"{regret.loops} | {regret.device_seconds:.0f} |"
        for regret in result.policy_regrets
    )
    head = f"| policy | mean {result.metric} | regret | interval | loops | device-seconds |\n|---|---|---|---|---|---|"
    return f"# {result.project}: {result.summary}\n\n{head}\n{rows}\n"
