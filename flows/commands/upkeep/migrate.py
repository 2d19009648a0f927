"""`loopline migrate`: moves the workspace's databases to Postgres."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from flows.console import options
from tasks.host import stores

if TYPE_CHECKING:
    from tasks.operations.migrate import Move

SHOWN = 4
STAYS = "Files stay where they are: outputs of steps, artifacts, data, logs of predictions."


@click.command()
@click.option("--to", metavar="URL", help="The state database: postgresql://user@host/loopline.")
@click.option("--yes", is_flag=True, help="Do it; else only show what would be done.")
@click.option("--back", "is_back", is_flag=True, help="Use the files here again, as they were at the move.")
@options.as_json
def command(to: str | None, yes: bool, is_back: bool, as_json: bool) -> None:
    """Copy the SQLite databases of this workspace to Postgres: loops, runs, versions, studies, flow runs.

    MLflow, Optuna and Prefect get databases of their own beside the one that --to names: its name with _mlflow, _optuna
    and _prefect. They are made if they do not exist; rows of others in them are refused. Each is copied whole or not at
    all, the files here keep their rows, and a call that was interrupted can be made again. At the end the file of the
    state database is marked as moved: commands that do not name the new address are refused there.

    Example: loopline migrate --to postgresql://loopline@db.example.org/loopline

    Example: loopline migrate --to postgresql://loopline@db.example.org/loopline --yes
    """
    from tasks.operations.migrate import environment_of, move, move_back, plan_moves

    if is_back == (to is not None):
        raise click.UsageError("expected --to URL, or --back")
    workspace = stores.open_workspace()
    if to is None:
        address = move_back(workspace)
        click.echo(f"The state database is here again. What came after the move is in {address} alone.")
        return
    moves = move(workspace, to, _note) if yes else plan_moves(workspace, to)
    environ = environment_of(moves)
    if as_json:
        options.print_json({"moves": [_plain(planned) for planned in moves], "environment": environ})
        return
    for planned in moves:
        click.echo(f"{planned.name:<8} {_describe(planned)}")
    click.echo(STAYS)
    if not environ:
        click.echo("Nothing to do.")
    elif yes:
        click.echo("Set these for every process of Loopline, and start servers anew:\n")
        click.echo("\n".join(f"export {name}={shlex.quote(address)}" for name, address in environ.items()))
        if any(planned.target.password for planned in moves):
            click.echo("\nWrite the password for ***.")
    else:
        click.echo("Nothing was changed: --yes does it.")


def _describe(planned: Move) -> str:
    if planned.state == "elsewhere":
        return f"{planned.variable} names another store already: left alone"
    if planned.state == "nothing here":
        creation = "" if planned.is_made else " (is made)"
        return f"nothing here yet: its tables are made in {planned.target.database}{creation} at the first use"
    largest = sorted(planned.contents.rows.items(), key=lambda table_and_rows: -table_and_rows[1])[:SHOWN]
    tables = ", ".join(f"{name} {number}" for name, number in largest)
    target = planned.target.database
    into = f"is in {target}" if planned.state == "moved" else f"to {target}{'' if planned.is_made else ' (is made)'}"
    return f"{planned.contents.total} rows in {len(planned.contents.rows)} tables ({tables}) {into}"


def _plain(planned: Move) -> dict[str, Any]:
    return {**asdict(planned), "target": str(planned.target)}


def _note(text: str) -> None:
    click.echo(text, err=True)
