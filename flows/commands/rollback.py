"""`loopline rollback`: undoes the last promotion."""

from __future__ import annotations

import click

from flows.console import options
from tasks.host import stores


@click.command()
@options.project
@click.option("--expect", metavar="VERSION", help="Refuse unless this version is the champion now.")
@click.option("--reason", default="a person asked", show_default=True, help="Kept in the journal.")
@options.as_json
def command(project: str, expect: str | None, reason: str, as_json: bool) -> None:
    """Make the previous champion of PROJECT champion again.

    A second rollback goes one version further back. Exit code 3 if there is no earlier champion.

    Example: loopline rollback flights --reason "complaints from Boston"

    Example: loopline rollback flights --expect 4
    """
    from tasks.loop.champion import open_registry

    this_project = stores.open_project(project)
    name = this_project.spec().name
    registry = open_registry(this_project.workspace, name)
    move = registry.rollback(reason, expect)
    options.say_late(registry.carrier.trouble)
    if as_json:
        options.print_json(move.model_dump())
    else:
        taken = f" (taken back: {move.before})" if move.before else ""
        click.echo(f"{name}: version {move.after} is the champion again{taken}")
