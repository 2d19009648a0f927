"""`loopline new`: creates a project from a data file, or as a copy of an example."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from models.files import SPEC_FILE
from tasks.host.workspace import Project, Workspace, keep_others_out

if TYPE_CHECKING:
    from tasks.operations.scaffold import Origin


@click.command()
@click.argument("name")
@click.option(
    "--from",
    "data",
    help="A file, a folder of tables, pictures or texts, an address, a package, own code, or a table of a database: "
    "'${WAREHOUSE_URL}#orders'; without a table its tables are listed.",
)
@click.option("--sql", help="The query of a database, in place of a table.")
@click.option("--target", help="The column to predict, or several: a,b; asked for in a terminal, else guessed.")
@click.option("--net", help="The net or estimator, such as trees or xgboost:XGBClassifier; default: auto.")
@click.option(
    "--example", help="Copy an example instead: table, texts, pictures, series, own-net, own-source or batch."
)
@click.option("--dry-run", is_flag=True, help="Print the spec, with the columns and their kinds; write nothing.")
def command(
    name: str,
    data: str | None,
    sql: str | None,
    target: str | None,
    net: str | None,
    example: str | None,
    dry_run: bool,
) -> None:
    """Make projects/NAME: read the data, guess kinds and task, write the spec and first expectations.

    Of large data a sample is read.

    Example: loopline new churn --from customers.csv --target left

    Example: loopline new digits --example pictures
    """
    if (data is None) == (example is None) or (example and (target or net or sql)):
        raise click.UsageError("give --from FILE, with or without --target and --net, or --example NAME")
    workspace = Workspace.find()
    if dry_run:
        click.echo(drafted(workspace, name, data, target, sql), nl=False)
        return
    keep_others_out(workspace)
    if data is None:
        project, summary = copied(workspace, name, str(example))
    else:
        project, summary = scaffolded(workspace, name, data, target, net, sql)
    click.echo(f"{project.spec_path}: {summary}")
    click.echo(f"Look through it, then: loopline run {name}")


def copied(workspace: Workspace, name: str, example: str) -> tuple[Project, str]:
    """Return a project that is a copy of an example, and what to say of it."""
    from tasks.operations.scaffold import copy_example

    return copy_example(workspace, name, example), f"a copy of the example {example!r}"


def read_origin(workspace: Workspace, data: str, sql: str | None) -> Origin:
    """Return where the rows come from; of a database without a named table the tables are printed."""
    from models.sources.databases.origin import UnnamedTableError
    from tasks.operations.scaffold import origin_of

    try:
        return origin_of(workspace, data, sql)
    except UnnamedTableError as error:
        for table in error.tables:
            click.echo(f"{table.text}\t{table.size}".expandtabs(40))
        raise


def drafted(workspace: Workspace, name: str, data: str | None, target: str | None, sql: str | None = None) -> str:
    """Return the text of the spec that a source would get."""
    from tasks.operations.scaffold import draft

    if data is None:
        raise click.UsageError("--dry-run shows what is guessed of --from FILE: an example is copied as it is")
    origin = read_origin(workspace, data, sql)
    return draft(origin, name, target, origin.source)[SPEC_FILE]


def scaffolded(
    workspace: Workspace, name: str, data: str, target: str | None, net: str | None = None, sql: str | None = None
) -> tuple[Project, str]:
    """Return a project for a source, and what to say of it; ask for the target in a terminal."""
    from tasks.operations.scaffold import make_project

    origin = read_origin(workspace, data, sql)
    if not origin.columns:
        return make_project(workspace, name, origin, target, net), "a language model of the text's characters"
    guessed = origin.guessed_target
    if target is None and sys.stdin.isatty():
        target = click.prompt("Which column shall be predicted?", default=guessed, type=click.Choice(origin.columns))
    note = "" if target else " (guessed: --target says otherwise)"
    project = make_project(workspace, name, origin, target or guessed, net)
    return project, f"predicts {target or guessed!r}{note}"
