"""`loopline doctor`: checks for anything that would make a loop fail."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flows.console import options
from models.errors import UsageError
from tasks.host import stores

if TYPE_CHECKING:
    from tasks.operations.doctor import Finding

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
    from tasks.operations.doctor import Finding, examine, examine_machine

    try:
        workspace = stores.open_workspace()
    except UsageError as error:
        if restored:
            raise
        findings = [*examine_machine(), Finding("workspace", "wrong", *str(error).rsplit(": ", 1))]
    else:
        findings = mend(workspace) if restored else examine(workspace)
    print_findings(findings, as_json)
    if any(finding.state == "wrong" for finding in findings):
        sys.exit(1)


def print_findings(findings: Sequence[Finding], as_json: bool) -> None:
    """Print findings, a line each, or as JSON."""
    if as_json:
        options.print_json([asdict(finding) for finding in findings])
        return
    for finding in findings:
        click.secho(f"{finding.state:<6}", fg=COLOURS[finding.state], nl=False)
        click.echo(f"{finding.what:<13} {finding.detail}" + (f": {finding.cure}" if finding.cure else ""))
