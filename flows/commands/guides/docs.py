"""`loopline docs`: opens the site of the documentation, which comes with the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from models.errors import UsageError, did_you_mean
from models.installation import repairing

SITE = Path(__file__).resolve().parents[2] / "site"


@click.command()
@click.argument("page", default="index")
@click.option("--print", "only_print", is_flag=True, help="Print the address of the page; open nothing.")
def command(page: str, only_print: bool) -> None:
    """Open the documentation in a browser. It needs no network; in a clone the first call builds it.

    PAGE is a page, with or without a place on it, such as reference/errors#models.data.split; default: the first page.

    Example: loopline docs

    Example: loopline docs reference/spec --print
    """
    name, _, place = page.partition("#")
    file = SITE / f"{name.removesuffix('.md').removesuffix('.html')}.html"
    if not (SITE / "index.html").is_file() and not _build():
        raise UsageError(f"{SITE}: the site is missing: {repairing()}")
    if not file.is_file():
        pages = [str(page.relative_to(SITE).with_suffix("")) for page in SITE.rglob("*.html")]
        raise UsageError(
            f"PAGE: got {name!r}, expected a page of the site: {did_you_mean(name, pages, 'see `loopline docs`')}"
        )
    address = file.as_uri() + (f"#{place}" if place else "")
    click.echo(address)
    if not only_print:
        click.launch(address)


def _build() -> bool:
    """Build the site, which takes seconds, if this is a clone with the program for it; return whether it is there."""
    program, clone = Path(sys.executable).with_name("zensical"), SITE.parents[1]
    if not program.is_file() or not (clone / "zensical.toml").is_file():
        return False
    click.echo("building the site, once ...", err=True)
    command = [str(program), "build", "--clean"]
    return subprocess.run(command, cwd=clone, stdout=subprocess.DEVNULL, check=False).returncode == 0
