"""`loopline reap`: cleans up after killed runs."""

from __future__ import annotations

import os

import click

from flows.console import options
from tasks.host import server_access, stores
from tasks.prefect.prefect_server import PrefectServer


@click.command()
@options.as_json
def command(as_json: bool) -> None:
    """Clean up after killed processes: MLflow runs, trials, Prefect runs, orphan processes, half-written files.

    Acts only on loops whose process is gone. Every `loopline run` does the same for its project.

    Example: loopline reap

    Example: loopline reap --json
    """
    from tasks.operations.reap import reap

    workspace = stores.open_workspace()
    url = PrefectServer(workspace).url()
    if url and not os.environ.get("PREFECT_API_URL"):
        server_access.use(workspace, url)
    lines = reap(workspace)
    if as_json:
        options.print_json(lines)
    else:
        click.echo("\n".join(lines) or "nothing to put right")
