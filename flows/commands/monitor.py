"""`loopline monitor`: runs the monitoring of the champion once, now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.console import options
from tasks.host import stores

if TYPE_CHECKING:
    from models.monitoring.report import MonitoringReport

COLOURS = {"green": "green", "amber": "yellow", "red": "red"}


@click.command()
@options.project
@options.as_json
def command(project: str, as_json: bool) -> None:
    """Monitor what PROJECT's champion predicted since the last run: data contract, realised metric, drift.

    Writes a page, sends metrics to MLflow, and events to Prefect if a signal asks for a loop. The exit code is 0
    whatever it found.

    Example: loopline monitor flights

    Example: loopline monitor flights --json
    """
    from tasks.operations.monitor import look

    workspace = stores.open_workspace()
    workspace.make()
    this_project = workspace.project(project)
    spec = this_project.spec()
    findings = look(this_project, spec)
    page = this_project.state(spec.name) / "monitoring" / "monitoring.html"
    if as_json:
        options.print_json({**findings.model_dump(mode="json"), "page": str(page)})
        return
    _print(findings, page)


def _print(findings: MonitoringReport, page: Path) -> None:
    click.secho(f"{findings.project}: {findings.reason}", fg=COLOURS[findings.state], bold=True)
    for note in findings.notes:
        click.echo(f"  {note}")
    for window in findings.of_champion()[-5:]:
        realised = window.realised.value if window.realised else None
        score = f"{findings.metric} {realised:.4f}" if realised is not None else "no metric yet"
        click.echo(
            f"  {window.id:<14} {window.num_predictions:>9,} predictions {window.num_labels:>9,} labels  "
            f"{score:<20} {window.reason}"
        )
    click.echo(f"  page: {page}")
