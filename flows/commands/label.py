"""`loopline label`: what turned out, for predictions that were made or will be."""

from __future__ import annotations

import getpass
from pathlib import Path

import click

from flows.commands import options
from models.specfile import read_spec
from tasks.runtime import stores
from tasks.runtime.workspace import Workspace


@click.command()
@options.project
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--id", "id_column", default="id", show_default=True, metavar="COLUMN", help="Names the prediction.")
@click.option("--by", metavar="WHO", help="Who says so; default: the user's name.")
@options.as_json
def command(project: str, file: Path, id_column: str, by: str | None, as_json: bool) -> None:
    """Take in the labels in FILE (CSV, Parquet, or a folder of them): the true values of what PROJECT predicted.

    FILE has a column of ids, as `loopline predict` wrote or was given them, and one called like the target, or `label`.
    All are taken, or none. A label may come early, late, again or corrected: the last one of an id counts.

    Example: loopline label penguins labels.csv --id tag
    """
    from tasks.label import accept_file

    workspace = Workspace.find()
    stores.configure(workspace)
    found = workspace.project(project)
    spec = read_spec(found.spec_path, (), found.shown_spec)
    told = accept_file(found, spec, file, by=by or getpass.getuser(), id_column=id_column)
    if as_json:
        options.print_json(told)
        return
    click.echo(f"{spec.name}: {told['taken']:,} labels taken in", nl=False)
    words = {"corrected": "correct others", "repeated": "known already", "waiting": "wait for their prediction"}
    rest = [f"{told[name]:,} {text}" for name, text in {**words, "empty": "rows without a label"}.items() if told[name]]
    click.echo(f" ({', '.join(rest)})" if rest else "")
