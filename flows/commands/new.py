"""`loopline new`: creates a project from a data file, or as a copy of an example."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tasks.host.workspace import Workspace, keep_others_out


@click.command()
@click.argument("name")
@click.option("--from", "data", type=click.Path(path_type=Path), help="A CSV, Parquet or text file, or a folder.")
@click.option("--target", help="The column to predict, or several: a,b; asked for in a terminal, else guessed.")
@click.option("--net", help="The net or estimator, such as trees or xgboost:XGBClassifier; default: auto.")
@click.option(
    "--example", help="Copy an example instead: table, texts, pictures, series, own-net, own-source or batch."
)
def command(name: str, data: Path | None, target: str | None, net: str | None, example: str | None) -> None:
    """Make projects/NAME: read the data, guess kinds and task, write the spec and first expectations.

    Example: loopline new churn --from customers.csv --target left

    Example: loopline new digits --example pictures
    """
    from tasks.operations.scaffold import columns_of, copy_example, make_project

    if (data is None) == (example is None) or (example and (target or net)):
        raise click.UsageError("give --from FILE, with or without --target and --net, or --example NAME")
    workspace = Workspace.find()
    keep_others_out(workspace)
    if data is None:
        click.echo(f"{copy_example(workspace, name, str(example)).spec_path}: a copy of the example {example!r}")
        click.echo(f"Look through it, then: loopline run {name}")
        return
    columns, guessed = columns_of(data)
    if not columns:
        project = make_project(workspace, name, data, target, net)
        click.echo(f"{project.spec_path}: a language model of the text's characters")
        click.echo(f"Look through it, then: loopline run {name}")
        return
    if target is None and sys.stdin.isatty():
        target = click.prompt("Which column shall be predicted?", default=guessed, type=click.Choice(columns))
    project = make_project(workspace, name, data, target or guessed, net)
    note = "" if target else " (guessed: --target says otherwise)"
    click.echo(f"{project.spec_path}: predicts {target or guessed!r}{note}")
    click.echo(f"Look through it, then: loopline run {name}")
