"""`loopline doctor`: checks for anything that would make a loop fail."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from flows.console import options
from tasks.host import stores

COLOURS = {"ok": "green", "warn": "yellow", "wrong": "red"}


@click.command()
@click.option("--restored", is_flag=True, help="The state database was put back from a copy: mend it.")
@options.as_json
def command(restored: bool, as_json: bool) -> None:
    """Check Python, packages, disk, stores and specs, and list what is registered; exit code 1 if a loop would fail.

    With --restored, after the state database was put back from a copy: end its leases, so that whoever held one
    records nothing more, and read from MLflow the moves and versions that are newer than the copy; exit code 1 if
    something is left to do.

    Example: loopline doctor

    Example: loopline doctor --restored
    """
    from tasks.operations.after_restore import mend
    from tasks.operations.doctor import examine

    workspace = stores.open_workspace()
    findings = mend(workspace) if restored else examine(workspace)
    if as_json:
        options.print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            click.secho(f"{finding.state:<6}", fg=COLOURS[finding.state], nl=False)
            click.echo(f"{finding.what:<13} {finding.detail}" + (f": {finding.cure}" if finding.cure else ""))
    if any(finding.state == "wrong" for finding in findings):
        sys.exit(1)
