"""`loopline predict`: predicts every row of a file with the champion, into one Parquet file."""

from __future__ import annotations

from pathlib import Path

import click

from flows.console import options, reporting
from tasks.host import stores


@click.command()
@options.project
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="The .parquet file to write. Default: beside FILE.")
@click.option(
    "--id",
    "id_column",
    metavar="COLUMN",
    help="Column with an id of each row, by which labels are joined. Default: ids are made.",
)
@click.option("--version", default="champion", show_default=True, help="Or challenger, previous, a number.")
@options.as_json
def command(project: str, file: Path, out: Path | None, id_column: str | None, version: str, as_json: bool) -> None:
    """Predict every row of FILE (CSV, Parquet, or a folder of them) with the champion of PROJECT.

    The rows have the project's own raw columns. Each is logged once, for `loopline label` and monitoring. A killed
    run resumes; a second run on the same file has nothing to do.

    Example: loopline predict penguins new.csv --id tag --out predictions.parquet

    Example: loopline predict penguins new.csv --version challenger
    """
    from tasks.operations.predict import predict

    this_project = stores.open_project(project)
    spec = this_project.spec()
    summary = predict(
        this_project, spec, file, out, id_column=id_column, version=version, reporter=reporting.for_terminal()
    )
    if as_json:
        options.print_json(summary)
        return
    for note in summary["notes"]:
        click.echo(note, err=True)
    click.echo(
        f"{summary['rows']:,} rows by {spec.name} version {summary['version']} ({summary['logged']:,} logged): "
        f"{summary['out']}"
    )
