"""`loopline new`: creates a project from a data file, or as a copy of an example."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tasks.host.workspace import Project, Workspace, keep_others_out


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
    if (data is None) == (example is None) or (example and (target or net)):
        raise click.UsageError("give --from FILE, with or without --target and --net, or --example NAME")
    workspace = Workspace.find()
    keep_others_out(workspace)
    if data is None:
        project, summary = copied(workspace, name, str(example))
    else:
        project, summary = scaffolded(workspace, name, data, target, net)
    click.echo(f"{project.spec_path}: {summary}")
    click.echo(f"Look through it, then: loopline run {name}")


def copied(workspace: Workspace, name: str, example: str) -> tuple[Project, str]:
    """Return a project that is a copy of an example, and what to say of it."""
    from tasks.operations.scaffold import copy_example

    return copy_example(workspace, name, example), f"a copy of the example {example!r}"


def scaffolded(
    workspace: Workspace, name: str, data: Path, target: str | None, net: str | None = None
) -> tuple[Project, str]:
    """Return a project for a data file, and what to say of it; ask for the target in a terminal."""
    from tasks.operations.scaffold import columns_of, make_project

    columns, guessed = columns_of(data)
    if not columns:
        return make_project(workspace, name, data, target, net), "a language model of the text's characters"
    if target is None and sys.stdin.isatty():
        target = click.prompt("Which column shall be predicted?", default=guessed, type=click.Choice(columns))
    note = "" if target else " (guessed: --target says otherwise)"
    project = make_project(workspace, name, data, target or guessed, net)
    return project, f"predicts {target or guessed!r}{note}"
