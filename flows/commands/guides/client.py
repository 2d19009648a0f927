"""`loopline client`: writes the package for `import loopline` as a wheel."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

import click


@click.command()
@click.option("--to", type=click.Path(path_type=Path), help="The folder to write it to. Default: a new temporary one.")
def command(to: Path | None) -> None:
    """Write the Python package `loopline` as a wheel, and print its path. It needs nothing but Python.

    Install it in the environment of your scripts and notebooks; it asks this program.

    Example: pip install "$(loopline client)"

    Example: loopline client --to wheels
    """
    from tasks.operations.client_wheel import write_wheel

    click.echo(write_wheel(to or Path(tempfile.mkdtemp(prefix="loopline-")), version("loopline")))
