"""`loopline export`: writes a version as a folder that needs only onnxruntime."""

from __future__ import annotations

from pathlib import Path

import click

from flows.console import options
from tasks.host import stores


@click.command()
@options.project
@click.option("--to", required=True, type=click.Path(path_type=Path), metavar="FOLDER", help="The folder to make.")
@click.option("--version", default="champion", show_default=True, help="Or challenger, previous, a number.")
@options.as_json
def command(project: str, to: Path, version: str, as_json: bool) -> None:
    """Write the champion of PROJECT as a bundle for a machine without Loopline.

    The folder holds the served ONNX file, a JSON Schema of inputs and outputs, an example, and a script of twenty lines
    that predicts the rows of a CSV or JSON file. It needs only onnxruntime.

    Example: loopline export penguins --to penguins-edge

    Example: loopline export penguins --to old-edge --version 3
    """
    from tasks.operations.edge import export_edge

    this_project = stores.open_project(project)
    name = this_project.spec().name
    summary = export_edge(this_project.workspace, name, to.resolve(), version)
    if as_json:
        options.print_json(summary)
        return
    if summary["note"]:
        click.echo(summary["note"], err=True)
    click.echo(f"{name} version {summary['version']} ({summary['size_bytes']:,} bytes): {summary['folder']}")
    click.echo(f"try it: python {to / 'predict.py'} {to / 'example.json'}")
