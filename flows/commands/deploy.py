"""`loopline deploy`: creates Prefect deployments of the projects' flows, on the schedules of their specs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from flows.console import options
from models.files import write_text
from tasks.host import stores
from tasks.host.workspace import Project


@click.command()
@click.argument("project", required=False, shell_complete=options.complete_project)
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write them to a file for `prefect deploy --prefect-file`, without a server.",
)
@options.as_json
def command(project: str | None, write: Path | None, as_json: bool) -> None:
    """Update Prefect's flows and schedules of PROJECT, or of every project, from the present specs.

    Deployments of projects that are gone are removed. What a person switched off on Prefect's page stays off.

    Example: loopline deploy flights

    Example: loopline deploy --write infra/prefect.yaml
    """
    from flows.prefect.platform import tell_prefect

    workspace = stores.open_workspace()
    chosen = [workspace.project(project)] if project else workspace.projects()
    if write:
        _write(chosen, write)
        return
    tell_prefect(workspace)
    from flows.prefect.deployments import DeploymentPlan, deploy  # Prefect reads its server's address during the import

    trouble: list[str] = []

    def note(text: str) -> None:
        trouble.extend([text] if text.startswith("not deployed") else [])
        click.echo(text, err=True)

    def fields(plan: DeploymentPlan) -> dict[str, Any]:
        schedule = plan.schedule.shown if plan.schedule else None
        return {"deployment": f"{plan.flow}/{plan.name}", "schedule": schedule, "parameters": plan.parameters}

    deployed = [fields(plan) for plan in deploy(workspace, chosen, note=note)]
    if as_json:
        options.print_json(deployed)
    for deployment in [] if as_json else deployed:
        click.echo(f"{deployment['deployment']:<32} {deployment['schedule'] or 'on request'}")
    if trouble:
        sys.exit(1)


def _write(projects: list[Project], path: Path) -> None:
    from flows.prefect.deployments import prefect_file

    write_text(path, prefect_file(projects))
    click.echo(path)
