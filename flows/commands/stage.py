"""`loopline stage`: runs one data stage by itself; `dvc repro` calls this."""

from __future__ import annotations

import click

from flows.console import options, reporting
from tasks.host import stores
from tasks.loop.lifecycle import open_stage


@click.command()
@click.argument("name", type=click.Choice(["ingest", "prepare"]))
@options.project
def command(name: str, project: str) -> None:
    """Run the data stage NAME of PROJECT and record it, so that the next loop does not prepare the data again.

    Example: loopline stage prepare flights

    Example: loopline stage ingest flights
    """
    from tasks.steps.ingest import ingest
    from tasks.steps.prepare import prepare
    from tasks.steps.validate import validate_raw

    workspace = stores.open_workspace()
    with open_stage(workspace.project(project), reporting.for_terminal()) as loop:
        ingest(loop)
        if name == "prepare":
            validate_raw(loop)
            prepare(loop)
