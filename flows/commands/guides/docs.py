"""`loopline docs`: opens the site of the documentation, which comes with the program."""

from __future__ import annotations

from pathlib import Path

import click

from models.errors import UsageError

SITE = Path(__file__).resolve().parents[2] / "site"


@click.command()
@click.option("--print", "only_print", is_flag=True, help="Print the address of the first page; open nothing.")
def command(only_print: bool) -> None:
    """Open the documentation in a browser. It needs no network.

    Example: loopline docs

    Example: loopline docs --print
    """
    page = SITE / "index.html"
    if not page.is_file():
        raise UsageError(f"{page}: the site was not built yet: run `make docs` in {SITE.parents[1]}")
    click.echo(page.as_uri())
    if not only_print:
        click.launch(page.as_uri())
