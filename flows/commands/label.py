"""`loopline label`: stores true outcomes for past or future predictions."""

from __future__ import annotations

import getpass
from pathlib import Path

import click

from flows.console import options
from tasks.host import stores


@click.command()
@options.project
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--id", "id_column", default="id", show_default=True, metavar="COLUMN", help="Names the prediction.")
@click.option("--by", metavar="WHO", help="Who labelled the rows. Default: the user's name.")
@click.option("--forget", multiple=True, metavar="ID", help="Withdraw the label of this prediction instead.")
@options.as_json
def command(
    project: str, file: Path | None, id_column: str, by: str | None, forget: tuple[str, ...], as_json: bool
) -> None:
    """Add the labels in FILE (CSV, Parquet, or a folder of them): the true values of PROJECT's predictions.

    FILE has a column of ids, those of `loopline predict`, and one called like the target, or `label`. All labels are
    stored, or none. A label may come early, late, again or corrected: the last one of an id counts.

    Example: loopline label penguins labels.csv --id tag

    Example: loopline label penguins --forget q-17
    """
    if (file is None) == (not forget):
        raise click.UsageError("give a FILE of labels, or --forget ID")
    from tasks.operations import label

    this_project = stores.open_project(project)
    spec = this_project.spec()
    who = by or getpass.getuser()
    if file is None:
        summary = {"forgotten": label.forget(this_project, spec, forget, labeller=who)}
        if as_json:
            options.print_json(summary)
        else:
            click.echo(f"{spec.name}: labels forgotten: {summary['forgotten']:,}; what was trained with them stays")
        return
    summary = label.accept_file(this_project, spec, file, labeller=who, id_column=id_column)
    if as_json:
        options.print_json(summary)
        return
    click.echo(f"{spec.name}: {summary['taken']:,} labels added", nl=False)
    words = {"corrected": "correct others", "repeated": "known already", "waiting": "wait for their prediction"}
    rest = [
        f"{summary[name]:,} {text}"
        for name, text in {**words, "empty": "rows without a label"}.items()
        if summary[name]
    ]
    click.echo(f" ({', '.join(rest)})" if rest else "")
