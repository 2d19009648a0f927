"""`loopline upgrade-check`: checks whether this version reads a workspace that an older one wrote."""

from __future__ import annotations

import sys

import click

from flows.commands.upkeep.doctor import print_findings
from flows.console import options
from tasks.host.workspace import Workspace


@click.command()
@options.as_json
def command(as_json: bool) -> None:
    """Check whether this version reads an older workspace; exit code 1 if something needs a step before.

    Names the specs that it refuses, loops that must end first, the migration of the databases, records of steps and
    champions that it cannot read, and packages that differ. Nothing is changed: an SQLite database is copied into a
    temporary folder and migrated there.

    Example: loopline upgrade-check

    Example: loopline upgrade-check --json
    """
    from tasks.operations.upgrade.check import examine

    findings = examine(Workspace.find())
    print_findings(findings, as_json)
    if any(finding.state == "wrong" for finding in findings):
        sys.exit(1)
