"""`loopline docs`: opens the site of the documentation, which comes with the program."""

from __future__ import annotations

from pathlib import Path

import click

from models.errors import UsageError, did_you_mean

SITE = Path(__file__).resolve().parents[2] / "site"


@click.command()
@click.argument("page", default="index")
@click.option("--print", "only_print", is_flag=True, help="Print the address of the page; open nothing.")
def command(page: str, only_print: bool) -> None:
    """Open the documentation in a browser. It needs no network.

    PAGE is a page, with or without a place on it, such as reference/errors#models.data.split; default: the first page.

    Example: loopline docs

    Example: loopline docs reference/spec --print
    """
    name, _, place = page.partition("#")
    file = SITE / f"{name.removesuffix('.md').removesuffix('.html')}.html"
    if not (SITE / "index.html").is_file():
        raise UsageError(f"{SITE}: the site was not built yet: run `make docs` in {SITE.parents[1]}")
    if not file.is_file():
        pages = [str(known.relative_to(SITE).with_suffix("")) for known in SITE.rglob("*.html")]
        raise UsageError(
            f"PAGE: got {name!r}, expected a page of the site: {did_you_mean(name, pages, 'see `loopline docs`')}"
        )
    address = file.as_uri() + (f"#{place}" if place else "")
    click.echo(address)
    if not only_print:
        click.launch(address)
