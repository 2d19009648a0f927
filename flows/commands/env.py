"""`loopline env`: the environment in which the tools' own command lines see this workspace."""

from __future__ import annotations

import shlex

import click

from tasks.runtime import stores
from tasks.runtime.prefect_server import Server
from tasks.runtime.workspace import Workspace


@click.command()
def command() -> None:
    """Print `export` lines with which mlflow, prefect and dvc see this workspace.

    Example: eval "$(loopline env)" && mlflow models list
    """
    workspace = Workspace.find()
    variables = stores.environment(workspace)
    url = Server(workspace).url()
    if url:
        variables["PREFECT_API_URL"] = url
    for key, value in sorted(variables.items()):
        click.echo(f"export {key}={shlex.quote(value)}")
