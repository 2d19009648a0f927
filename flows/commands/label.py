"""`loopline label`: what turned out, for predictions that were made or will be."""

from __future__ import annotations

import getpass
from pathlib import Path

import click

from flows.console import options
from models.project_spec.reader import read_spec
from tasks.host import stores
from tasks.host.workspace import Workspace


@click.command()
@options.project
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--id", "id_column", default="id", show_default=True, metavar="COLUMN", help="Names the prediction.")
@click.option("--by", metavar="WHO", help="Who says so; default: the user's name.")
@click.option("--forget", multiple=True, metavar="ID", help="Withdraw the label of this prediction instead.")
@options.as_json
def command(
    project: str, file: Path | None, id_column: str, by: str | None, forget: tuple[str, ...], as_json: bool
) -> None:
    """Take in the labels in FILE (CSV, Parquet, or a folder of them): the true values of what PROJECT predicted.

    FILE has a column of ids, as `loopline predict` wrote or was given them, and one called like the target, or `label`.
    All are taken, or none. A label may come early, late, again or corrected: the last one of an id counts.

    Example: loopline label penguins labels.csv --id tag

    Example: loopline label penguins --forget q-17
    """
    if (file is None) == (not forget):
        raise click.UsageError("give a FILE of labels, or --forget ID")
    from tasks.operations import label

    workspace = Workspace.find()
    stores.configure(workspace)
    found = workspace.project(project)
    spec = read_spec(found.spec_path, (), found.shown_spec)
    who = by or getpass.getuser()
    if file is None:
        told = {"forgotten": label.forget(found, spec, forget, by=who)}
        if as_json:
            options.print_json(told)
        else:
            click.echo(f"{spec.name}: labels forgotten: {told['forgotten']:,}; what was trained with them stays")
        return
    told = label.accept_file(found, spec, file, by=who, id_column=id_column)
    if as_json:
        options.print_json(told)
        return
    click.echo(f"{spec.name}: {told['taken']:,} labels taken in", nl=False)
    words = {"corrected": "correct others", "repeated": "known already", "waiting": "wait for their prediction"}
    rest = [f"{told[name]:,} {text}" for name, text in {**words, "empty": "rows without a label"}.items() if told[name]]
    click.echo(f" ({', '.join(rest)})" if rest else "")
