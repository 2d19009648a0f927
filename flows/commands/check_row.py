"""`loopline check-row`: the conformance suite of a metric, launcher, source or family of one's own."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flows.console import options


@click.command()
@click.argument("row")
@options.as_json
def command(row: str, as_json: bool) -> None:
    """Check a row of your own, such as ./metric.py:METRIC or package.module:METRIC; exit code 1 if a claim fails.

    A file starts from the current folder, what it reads from its own. Of a launcher name the place of places.yaml whose
    engine it is: the suite trains tiny jobs there. It is for the CI of whoever writes a row, and needs no import of
    Loopline.

    Example: loopline check-row ./metric.py:METRIC

    Example: loopline check-row gpu
    """
    from tasks.operations.row_suites import check_row

    outcomes = []
    for outcome in check_row(row, Path.cwd()):
        outcomes.append(outcome)
        if not as_json:
            click.secho(f"{'wrong' if outcome.error else 'ok':<6}", fg="red" if outcome.error else "green", nl=False)
            click.echo(outcome.claim + (f": {outcome.error}" if outcome.error else ""))
    if as_json:
        options.print_json([outcome._asdict() for outcome in outcomes])
    if any(outcome.error for outcome in outcomes):
        sys.exit(1)
