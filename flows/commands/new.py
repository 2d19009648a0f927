"""`loopline new`: creates a project from a data file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tasks.host.workspace import Workspace


@click.command()
@click.argument("name")
@click.option(
    "--from", "data", required=True, type=click.Path(path_type=Path), help="A CSV, Parquet or text file, or a folder."
)
@click.option("--target", help="The column to predict; asked for in a terminal, else guessed and said.")
def command(name: str, data: Path, target: str | None) -> None:
    """Make projects/NAME: read the data, guess kinds and task, write the spec and first expectations.

    Example: loopline new churn --from customers.csv --target left
    """
    from tasks.operations.scaffold import columns_of, make_project

    columns, guessed = columns_of(data)
    if not columns:
        made = make_project(Workspace.find(), name, data, target)
        click.echo(f"{made.spec_path}: a language model of the text's characters")
        click.echo(f"Look through it, then: loopline run {name}")
        return
    if target is None and sys.stdin.isatty():
        target = click.prompt("Which column shall be predicted?", default=guessed, type=click.Choice(columns))
    made = make_project(Workspace.find(), name, data, target or guessed)
    click.echo(
        f"{made.spec_path}: predicts {target or guessed!r}" + ("" if target else " (guessed: --target says otherwise)")
    )
    click.echo(f"Look through it, then: loopline run {name}")
