"""`loopline promote`: makes a version the champion by hand, with the same compare-and-swap as a loop."""

from __future__ import annotations

import click

from flows.console import options
from models.errors import UsageError
from tasks.host import stores


@click.command()
@options.project
@click.argument("version", required=False)
@click.option("--expect", metavar="VERSION", help="Refuse unless this version is the champion now.")
@click.option("--reason", default="a person asked", show_default=True, help="Kept in the journal.")
@options.as_json
def command(project: str, version: str | None, expect: str | None, reason: str, as_json: bool) -> None:
    """Make VERSION of PROJECT the champion; without VERSION, the challenger.

    Example: loopline promote flights 3 --expect 2 --reason "approved by Ada"

    Example: loopline promote flights
    """
    from tasks.loop.champion import open_registry

    this_project = stores.open_project(project)
    name = this_project.spec().name
    registry = open_registry(this_project.workspace, name)
    chosen = version or registry.challenger()
    if chosen is None:
        raise UsageError(f"{name}: there is no challenger: name a version, as in `loopline promote {project} VERSION`")
    registry.tags(chosen)
    champion = registry.champion()
    move = registry.promote(chosen, expect or (champion.number if champion else None), reason=reason)
    options.say_late(registry.carrier.trouble)
    if as_json:
        options.print_json(move.model_dump())
    else:
        click.echo(f"{name}: version {move.after} is the champion (before: {move.before or 'no champion'})")
