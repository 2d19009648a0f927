"""`loopline suggest-labels`: lists the predictions that a person should label next."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flows.console import options
from tasks.host import stores


@click.command()
@options.project
@click.option("-n", "count", default=50, show_default=True, type=click.IntRange(1, 10_000), help="How many to ask.")
@click.option("--out", type=click.Path(path_type=Path), help="A CSV file; default: standard output.")
def command(project: str, count: int, out: Path | None) -> None:
    """List the unlabelled predictions of PROJECT whose labels would help training most, as a CSV file to fill in.

    These are uncertain and differ from each other. Fill in the column `label` and give the file to `loopline label`.

    Example: loopline suggest-labels penguins -n 20 --out to-label.csv

    Example: loopline suggest-labels penguins
    """
    from tasks.operations.suggest_labels import ask, write_csv

    this_project = stores.open_project(project)
    spec = this_project.spec()
    summary = ask(this_project, spec, count)
    write_csv(summary["table"], out or sys.stdout.buffer)
    num_rows = summary["table"].num_rows
    click.echo(f"{num_rows:,} of {summary['of']:,} unlabelled predictions: {summary['method']}", err=True)
    if out:
        click.echo(f"fill in the column `label` of {out}, then: loopline label {project} {out}", err=True)
