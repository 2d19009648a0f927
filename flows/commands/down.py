"""`loopline down`: ends the platform that `loopline up` started."""

from __future__ import annotations

import sys

import click

from tasks.host import stores


@click.command()
@click.option("--wait", is_flag=True, help="Let the runs in progress end first; no new ones begin.")
@click.option("--force", is_flag=True, help="Stop the runs in progress; they resume with the next `loopline up`.")
def command(wait: bool, force: bool) -> None:
    """End every process of the platform, and nothing else. If a loop is in progress, ask first.

    Example: loopline down --wait

    Example: loopline down --force
    """
    from flows.prefect.platform import take_down
    from models.errors import UsageError
    from tasks.platform.platform import loops

    if wait and force:
        raise UsageError("got --wait and --force, expected one of them")
    workspace = stores.open_workspace()
    runs = [] if wait or force else loops(workspace)
    if runs and sys.stdin.isatty():
        force = click.confirm(f"in progress: {', '.join(runs)}. Interrupt them? The next `loopline up` continues them")
    was_up = take_down(workspace, _note, "force" if force else "wait" if wait else "refuse")
    click.echo("down" if was_up else "nothing of the platform was running")


def _note(text: str) -> None:
    click.echo(text, err=True)
