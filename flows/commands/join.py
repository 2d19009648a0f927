"""`loopline join`: joins a training of another machine with this machine."""

from __future__ import annotations

import click


@click.command()
@click.argument("endpoint", metavar="HOST:PORT")
@click.option(
    "--token",
    envvar="LOOPLINE_NODES_TOKEN",
    required=True,
    help="The token that the loop printed; or LOOPLINE_NODES_TOKEN.",
)
@click.option("--wait", "wait_s", default=600.0, show_default=True, help="Seconds to wait until the loop listens.")
def command(endpoint: str, token: str, wait_s: float) -> None:
    """Train with the machine at HOST:PORT, whose `train.nodes` allows more than one, until the training ends.

    Workspace and data must be in a folder that both machines share under the same path, and both need the same code. A
    machine that was lost may come back by the same command.

    Example: loopline join 10.0.0.1:29400 --token 1f8e93c0a7b24d56

    Example: LOOPLINE_NODES_TOKEN=1f8e93c0a7b24d56 loopline join 10.0.0.1:29400 --wait 60
    """
    from tasks.ranks.rendezvous import join

    join(endpoint, token, wait_s, lambda line: click.echo(line, err=True))
