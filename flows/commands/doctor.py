"""`loopline doctor`: checks for anything that would make a loop fail."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from flows.console import options
from tasks.host import stores

COLOURS = {"ok": "green", "warn": "yellow", "wrong": "red"}


@click.command()
@options.as_json
def command(as_json: bool) -> None:
    """Check Python, packages, disk, stores and specs, and list what is registered; exit code 1 if a loop would fail.

    Example: loopline doctor

    Example: loopline doctor --json
    """
    from tasks.operations.doctor import examine

    workspace = stores.open_workspace()
    findings = examine(workspace)
    if as_json:
        options.print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            click.secho(f"{finding.state:<6}", fg=COLOURS[finding.state], nl=False)
            click.echo(f"{finding.what:<13} {finding.detail}" + (f": {finding.cure}" if finding.cure else ""))
    if any(finding.state == "wrong" for finding in findings):
        sys.exit(1)
