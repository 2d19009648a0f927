"""`loopline gx`: writes what validation found as a context of Great Expectations."""

from __future__ import annotations

import click

from tasks.host import stores


@click.command()
def command() -> None:
    """Write what validation found as a file context of Great Expectations, for its own functions and Data Docs.

    The context is made anew from the stored reports of all loops; what was added to it by hand is lost. It has assets,
    suites and checkpoints by project and stage, and validation results by loop.

    Example: loopline gx

    Example: LOOPLINE_HOME=shared loopline gx
    """
    from tasks.tools.expectations_context import write_context

    workspace = stores.open_workspace()
    folder, num_results = write_context(workspace)
    click.echo(f"{folder}: {num_results} validation results")
    click.echo(f'open it: great_expectations.get_context(mode="file", project_root_dir="{folder.parent}")')
