"""`loopline adopt`: hands the registered model of a project to this workspace."""

from __future__ import annotations

import click

from flows.console import options
from models.serving.registry import champion_words
from tasks.host import stores


@click.command()
@options.project
@click.option("--reason", required=True, help="Kept in the journal.")
@options.as_json
def command(project: str, reason: str, as_json: bool) -> None:
    """Make the registered model of PROJECT, which belongs to another workspace, belong to this one.

    For a workspace that was lost, moved or joined with this one. The moves so far are read from MLflow's journal tags;
    the champion stays. The other workspace, if it still runs, follows from its next look on, and says so.

    Example: loopline adopt flights --reason "the old machine is gone"

    Example: loopline adopt flights --reason "teams were joined" --json
    """
    from tasks.loop.champion import open_registry

    this_project = stores.open_project(project)
    name = this_project.spec().name
    move = open_registry(this_project.workspace, name).adopt(reason)
    if as_json:
        options.print_json(move.model_dump())
    else:
        click.echo(f"{name}: belongs to this workspace; {champion_words(move.after)}")
